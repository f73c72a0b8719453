"""Text before and after a model, for workflows, translation and exports.

lines.py -> subwords.py -> tokenizer.py -> model
whitespace.py and moses.py serve all of them; scores.py scores translations, with the tokenizer that
languages.py names.
"""
