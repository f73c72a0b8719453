"""From raw text to a pretrained encoder; what it shares with translation is imported from there.

text -> clean -> split -> subwords -> encoded -> data-bin        pretrain
(documents)      (prepare.py puts these in a row)                (fairseq-train)
"""
