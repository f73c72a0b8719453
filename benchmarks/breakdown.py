"""Where a training step's time goes: stock fairseq's and ours, by kinds of PyTorch's operators.

    python -m benchmarks.breakdown [--data DATA-BIN] [--size _tiny] [--rows stock stock+ diet_rel]

The steps are those of `benchmarks.translation`. PyTorch's profiler gives the operators' times; the
last row of times is the CPU seconds of a call without it, Python included. Take one thread. The
rate of matrix products stands beside that of one large product, the most the machine can do.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from diet_fairseq.config import translation_schemes

from .harness import machine
from .translation import BF16, STOCK, WITH_OURS, batches_of, trainer_of

PRODUCTS, OTHERS = "matrix products", "the rest of PyTorch"
#: kinds and the names of their operators; the first that matches
KINDS = {
    PRODUCTS: ("aten::*mm",),
    "optimizer": ("*adam*",),
    "softmax, losses": ("*softmax*", "aten::exp*", "*logsumexp*", "*nll_loss*"),
    "layer norm": ("*layer_norm*",),
    "random numbers": ("*random*", "*bernoulli*", "*dropout*"),
    "copies and fills": ("aten::copy_", "aten::cat", "aten::fill_", "aten::zero_"),
    "look-ups and their gradients": ("*index*", "*gather*", "*scatter*", "*embedding*"),
    "sums, masks, elementwise": (
        *("aten::add*", "aten::sub*", "aten::mul*", "aten::div*", "aten::sum*", "aten::relu*"),
        *("*masked_fill*", "*where*", "*threshold*"),
    ),
}


def kind_of(operator: str) -> str:
    kinds = (kind for kind, names in KINDS.items() if any(fnmatch(operator, n) for n in names))
    return next(kinds, OTHERS)


def breakdown(run: Callable[[], object]) -> tuple[float, Counter[str], float]:
    """CPU seconds of a call, those of each kind of operator, and the products' GFLOP."""
    run()
    start = time.process_time()
    run()
    whole = time.process_time() - start
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler:
        run()
    kinds: Counter[str] = Counter()
    flop = 0
    for event in profiler.key_averages():
        kinds[kind_of(event.key)] += event.self_cpu_time_total / 1e6
        flop += event.flops if kind_of(event.key) == PRODUCTS else 0
    return whole, kinds, flop / 1e9


def best_rate(size: int = 1536) -> float:
    """GFLOP/s of the quickest of some large products."""
    x = torch.randn(size, size)
    seconds = []
    for _ in range(7):
        start = time.process_time()
        x @ x
        seconds.append(time.process_time() - start)
    return 2e-9 * size**3 / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of fairseq-preprocess (default: random words)")
    parser.add_argument("--size", default="_tiny", help="suffix of the architectures")
    names = [
        name + end for name in (STOCK, WITH_OURS, *translation_schemes()) for end in ("", BF16)
    ]
    rows = [STOCK, WITH_OURS, "diet_rel", "diet_abs"]
    parser.add_argument("--rows", nargs="+", default=rows, choices=names)
    args = parser.parse_args()

    results = {}
    for row in args.rows:
        trainer = trainer_of(row, args.size, args.data)
        samples = batches_of(trainer.task, 4096)

        def steps(trainer: Any = trainer, samples: Any = samples) -> None:
            for sample in samples:
                trainer.train_step([sample])

        results[row] = breakdown(steps)
    kinds = sum((kinds for _, kinds, _ in results.values()), Counter())
    print(f"| ms | {' | '.join(results)} |\n|{' --- |' * (1 + len(results))}")
    for kind, _ in kinds.most_common():
        print(f"| {kind} | {' | '.join(f'{1000 * k[kind]:.0f}' for _, k, _ in results.values())} |")
    lines = {
        "all, with the profiler": [f"{1000 * k.total():.0f}" for _, k, _ in results.values()],
        "all, without it": [f"{1000 * whole:.0f}" for whole, _, _ in results.values()],
        "share of matrix products": [
            f"{k[PRODUCTS] / k.total():.0%}" for _, k, _ in results.values()
        ],
        "their GFLOP/s": [f"{flop / k[PRODUCTS]:.0f}" for _, k, flop in results.values()],
    }
    for name, cells in lines.items():
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nOne large product: {best_rate():.0f} GFLOP/s")
    print(machine())


if __name__ == "__main__":
    main()
