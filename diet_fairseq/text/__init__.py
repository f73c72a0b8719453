"""Text preprocessing and postprocessing, for workflows, translation and exports.

lines.py -> sentences.py -> subwords.py -> tokenizer.py -> model
These modules use whitespace.py, moses.py and languages.py; scores.py scores translations with the
tokenizers that languages.py names.
"""
