"""Our loss and dropout on a CPU against fairseq's and PyTorch's.

    python -m benchmarks.parts [--tokens 3600] [--words 7792] [--width 128] [--rounds 15]

The loss: output projection, label smoothing and all gradients. Dropout: attention weights of
8 sentences, 12 heads, 256 tokens, with their gradient.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from diet_fairseq.attention.dropout import dropout
from diet_fairseq.criterions.diet_fused_label_smoothing import LinearCrossEntropy

from .harness import in_turn, machine

SMOOTHING = 0.1
#: sentences, heads, queries, keys
WEIGHTS = (8, 12, 256, 256)


def losses(tokens: int, words: int, width: int) -> dict[str, Callable[[], object]]:
    x = torch.randn(tokens, width, requires_grad=True)
    weight = torch.randn(words, width).mul_(0.1).requires_grad_()
    target = torch.randint(words, (tokens,))

    def stock() -> None:
        scores = F.log_softmax(F.linear(x, weight), dim=-1, dtype=torch.float32)
        loss, _ = label_smoothed_nll_loss(scores, target, SMOOTHING, ignore_index=-1)
        torch.autograd.grad(loss, (x, weight))

    def ours() -> None:
        loss, _ = LinearCrossEntropy.apply(x, weight, target, SMOOTHING)
        torch.autograd.grad(loss, (x, weight))

    return {"loss, fairseq's": stock, "loss, ours": ours}


def dropouts() -> dict[str, Callable[[], object]]:
    x = torch.randn(WEIGHTS, requires_grad=True)
    grad = torch.randn(WEIGHTS)

    def run(function: Callable) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(x, 0.1), x, grad)

    return {"dropout, PyTorch's": run(F.dropout), "dropout, ours": run(dropout)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=3600)
    parser.add_argument("--words", type=int, default=7792)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print("| part | ms | ratio |\n| --- | --- | --- |")
    for candidates in (losses(args.tokens, args.words, args.width), dropouts()):
        for timing in in_turn(candidates, args.rounds):
            print(f"| {timing.name} | {1000 * timing.median:.0f} | {timing.ratio:.2f} |")
    print(machine())


if __name__ == "__main__":
    main()
