"""Text preprocessing and postprocessing, for workflows, translation and exports.

lines.py -> subwords.py -> tokenizer.py -> model
These modules use whitespace.py and moses.py; scores.py scores translations with the tokenizers that
languages.py names.
"""
