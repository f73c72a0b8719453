"""Text before and after a model, for workflows, inference and exports.

download.py -> lines.py -> cleaning.py, sampling.py -> subwords.py (learn) -> tokenizer.py -> model
whitespace.py and moses.py serve all of them; scores.py scores translations.
"""
