"""From raw text to a pretrained encoder.

text -> clean -> split -> subwords -> encoded -> data-bin        pretrain
(documents)      (prepare.py puts these in a row)                (fairseq-train)
"""
