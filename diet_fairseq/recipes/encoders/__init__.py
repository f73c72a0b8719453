"""``diet-fairseq encoder``: from raw text to a pretrained encoder, and from that to GLUE.

raw text -> clean -> split -> subwords -> encoded -> data-bin        pretrain
(documents.py)                                      (prepare.py)     (fairseq-train)

TSV -> examples -> encoded -> data-bin              finetune -> report, predict
       (glue_tasks.py)       (prepare_task.py)      (a grid of cells)
"""
