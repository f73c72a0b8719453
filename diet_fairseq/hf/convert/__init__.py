"""Conversion of fairseq's models to transformers, and back; needs fairseq.

`to_transformers` is ``diet-fairseq export hf``, `from_transformers` is ``diet-fairseq import hf``.
`configuration` converts options, `parameters` names and tensors, each in both directions.
"""
