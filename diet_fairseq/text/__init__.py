"""Text on its way to a model and back; one implementation for workflows, inference and exports.

download.py -> lines.py -> cleaning.py, sampling.py -> subwords.py (learn) -> tokenizer.py -> model
whitespace.py and moses.py serve all of them; scores.py scores what comes back.
"""
