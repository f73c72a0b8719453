"""From raw parallel text to BLEU: what the folders wmt18 and multi30k share.

text -> clean -> subwords -> binarise        train            translate -> score
(lines)  (prepare.py puts these in a row)    (fairseq-train)  (evaluate.py)
"""
