"""Conversion of fairseq's models to transformers, and back; needs fairseq.

`to_transformers` is ``diet-fairseq export hf``, `from_transformers` is ``diet-fairseq import hf``.
`original` imports transformers' own classes, each described in a module of its name (`family`,
`translation` and `masked_lm` are what they share); `to_original` exports them again. `card` writes
the model card.
`configuration` converts options, `parameters` names and tensors, each in both directions.
"""
