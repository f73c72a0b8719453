"""``diet-fairseq translation``: from raw parallel text to BLEU.

raw text -> clean -> subwords -> encoded -> data-bin        train            translate -> score
(corpora/)  (clean.py)                      (prepare.py)    (fairseq-train)  (evaluate.py)
"""
