"""results/pretraining/first-attention.csv: the attention of a head's offset before training.

    python first-attention.py > first-attention.csv

Words contribute nothing then, so the softmax of the initial scores is the attention. Each cell is
the mean over four heads and all queries whose offset is within the text. The last row has the
frequencies of version 0.4.
"""

import math

import torch

from diet_fairseq.positions import SCHEMES, AttentionShape, Limit, diet_abs
from diet_fairseq.positions.gain import first_offsets
from diet_fairseq.positions.layout import Layout


def share(scheme: str, tokens: int, **options: object) -> float:
    limit = Limit(tokens, "--max-positions")
    shape = AttentionShape(4, 32, 128, limit, limit)
    layout = Layout.of_self_attention(torch.zeros(1, tokens, dtype=torch.bool))
    score = SCHEMES[scheme].create(shape, **options).score(layout).dense(layout)  # (1, H, T, T)
    attention = score[0].detach().double().softmax(-1)
    offsets = first_offsets(shape).tolist()
    shares = [attention[head].diagonal(offset).mean() for head, offset in enumerate(offsets)]
    return float(torch.stack(shares).mean())


def print_row(label: str, scheme: str, **options: object) -> None:
    shares = [
        share(scheme, n, peak=p, **options) for n in (128, 512) for p in (3.0, 6.0, 9.0, 12.0)
    ]
    print(label, *(f"{share:.2f}" for share in shares), sep=",")


print("start", *(f"{n} tokens: peak {p}" for n in (128, 512) for p in (3, 6, 9, 12)), sep=",")
print_row("diet_rel", "diet_rel")
print_row("diet_abs with d_p = 64", "diet_abs", rank=64)
print_row("diet_abs with d_p = 32", "diet_abs", rank=32)
diet_abs.wave_frequencies = lambda count: (torch.arange(count) + 0.5) * math.pi / count
print_row("diet_abs of 0.4 with d_p = 32", "diet_abs", rank=32)
