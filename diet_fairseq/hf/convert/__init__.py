"""Conversion between fairseq's models and folders of transformers; needs fairseq.

`to_transformers` is ``diet-fairseq export hf``, and `from_transformers` is ``diet-fairseq import
hf``. `configuration` converts options and names of parameters, in both directions. `card` writes
the model card.

`original` imports models of transformers' own classes, and `to_original` exports them again.
`translation` and `masked_lm` describe these classes; `family` is the base class of the
descriptions, and `vocabulary` reads the vocabularies. `text_check` compares text before an import
is complete.
"""
