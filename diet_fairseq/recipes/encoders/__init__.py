"""From raw text to a pretrained encoder, and from that to GLUE.

text -> clean -> split -> subwords -> encoded -> data-bin        pretrain
(documents)      (prepare.py puts these in a row)                (fairseq-train)

TSV -> examples -> encoded -> data-bin     finetune -> report, predict
       (glue_tasks.py)  (prepare_task.py)       (cells)
"""
