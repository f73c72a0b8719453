"""The attention backends beside each other: what ``--attention-backend auto`` goes by.

    python -m benchmarks.attention [--lengths 32 64 128 256 512 1024 2048] [--rounds 7]

One attention call of BERT-base's shape (12 heads of 64) on 4,096 tokens, with what a scheme adds
for all sentences alike: a score, or for "factors" a product of rank 64. A training call goes back
to q, k, v and what is added, with dropout and without.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from diet_fairseq.attention.backends import BACKENDS, AttentionCall
from diet_fairseq.attention.context import Term
from diet_fairseq.positions.layout import Layout

from .harness import in_turn, machine

HEADS, HEAD_DIM, TOKENS = 12, 64, 4096
LENGTHS = [32, 64, 128, 256, 512, 1024, 2048]
CALLS = {"inference": None, "training, dropout 0.1": 0.1, "training": 0.0}


def call(backend: str, length: int, dropout: float | None) -> Callable[[], object]:
    """A training call with so much dropout; None: one at inference."""
    sentences = TOKENS // length
    inputs = [torch.randn(sentences, HEADS, length, HEAD_DIM) for _ in range(3)]
    inputs[0] *= HEAD_DIM**-0.5  # weights that vanish would be denormal, and slow
    added = [torch.randn(1, HEADS, length, HEAD_DIM) * HEAD_DIM**-0.25 for _ in range(2)]
    if backend != "factors":
        added = [torch.randn(1, HEADS, length, length)]
    layout = Layout.of_self_attention(torch.zeros(sentences, length, dtype=torch.bool))

    def run(tensors: list[Tensor], dropout: float) -> Tensor:
        q, k, v, *rest = tensors
        term = Term(factors=((rest[0], rest[1]),)) if len(rest) == 2 else Term(rest[0])
        out, _ = BACKENDS[backend](AttentionCall(q, k, v, term, (), layout, dropout))
        return out

    @torch.no_grad()
    def forward() -> None:
        run([*inputs, *added], 0.0)

    def step() -> None:
        leaves = [tensor.detach().requires_grad_() for tensor in (*inputs, *added)]
        run(leaves, dropout or 0.0).sum().backward()

    return forward if dropout is None else step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()

    others = [name for name in BACKENDS if name != "reference"]
    print(f"| call | n | reference | {' | '.join(others)} |\n|{' --- |' * (3 + len(others))}")
    for what, dropout in CALLS.items():
        for length in args.lengths:
            backends = {name: call(name, length, dropout) for name in BACKENDS}
            first, *rest = in_turn(backends, args.rounds)
            ratios = " | ".join(f"{timing.ratio:.2f}" for timing in rest)
            print(f"| {what} | {length} | {1000 * first.median:.0f} ms | {ratios} |", flush=True)
    print(machine())


if __name__ == "__main__":
    main()
