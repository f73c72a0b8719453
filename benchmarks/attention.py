"""Timings of attention backends, the figures behind ``--attention-backend auto``.

    python -m benchmarks.attention [--lengths 32 64 128 256 512 1024 2048] [--rounds 7]
    python -m benchmarks.attention --choices [--device cuda] [--bf16] [--tokens 4096]

One attention call of BERT-base's shape (12 heads of 64) on 4,096 tokens, with the terms that a
scheme adds to all sentences alike: a score, or for "factors" a product of rank 64. A training call
computes the gradients of q, k, v and the added terms, with dropout and without. For four schemes
``--choices`` prints the backend that ``auto`` selects, the fastest backend that can compute the
call, and the times of all backends, measured in turn. On a GPU all calls are in bfloat16.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from diet_fairseq.attention.backends import (
    BACKENDS,
    AttentionCall,
    CallShape,
    choose_backend,
    list_candidates,
)
from diet_fairseq.attention.backends.comparison import compute_results
from diet_fairseq.positions import SCHEMES
from diet_fairseq.positions.base import AttentionShape, Limit
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Dense, Factors

from .harness import in_turn, machine

HEADS, HEAD_DIM, TOKENS = 12, 64, 4096
LENGTHS = [32, 64, 128, 256, 512, 1024, 2048]


def gpu_time() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


CLOCKS = {"cpu": time.process_time, "cuda": gpu_time}
CALLS = {"inference": None, "training, dropout 0.1": 0.1, "training": 0.0}


def call(backend: str, length: int, dropout: float | None) -> Callable[[], object]:
    """A training call with this dropout probability; None: a call at inference."""
    sentences = TOKENS // length
    inputs = [torch.randn(sentences, HEADS, length, HEAD_DIM) for _ in range(3)]
    inputs[0] *= HEAD_DIM**-0.5  # weights that vanish would be denormal, and slow
    added = [torch.randn(1, HEADS, length, HEAD_DIM) * HEAD_DIM**-0.25 for _ in range(2)]
    if backend != "factors":
        added = [torch.randn(1, HEADS, length, length)]
    layout = Layout.of_self_attention(torch.zeros(sentences, length, dtype=torch.bool))

    def run(tensors: list[Tensor], dropout: float) -> Tensor:
        q, k, v, *rest = tensors
        score = Factors(*rest) if len(rest) == 2 else Dense(*rest)
        out, _ = BACKENDS[backend](AttentionCall(q, k, v, (score,), (), layout, dropout))
        return out

    @torch.no_grad()
    def forward() -> None:
        run([*inputs, *added], 0.0)

    def step() -> None:
        leaves = [tensor.detach().requires_grad_() for tensor in (*inputs, *added)]
        run(leaves, dropout or 0.0).sum().backward()

    return forward if dropout is None else step


def request(
    scheme: str, length: int, dropout: float | None, tokens: int, device: str, dtype: torch.dtype
) -> CallShape:
    """The request of the same call, for a layer with this scheme."""
    limit = Limit(length, "--max-positions")
    shape = AttentionShape(HEADS, HEAD_DIM, HEADS * HEAD_DIM, limit, limit)
    sentences = tokens // length
    padding = torch.zeros(sentences, length, dtype=torch.bool, device=device)
    layout = Layout.of_self_attention(padding)
    schemes = (SCHEMES[scheme].create(shape).to(device),) if SCHEMES[scheme].in_attention else ()
    return CallShape(schemes, layout, (sentences, HEADS, HEAD_DIM), dtype, dropout or 0.0)


def choices(lengths: list[int], rounds: int, tokens: int, device: str, dtype: torch.dtype) -> None:
    """Print the selected backend, the quickest, their ratio of speeds, and all times."""
    print("| scheme | call | n | backend | quickest | its speed | ms |\n|" + " --- |" * 7)
    for scheme in ("none", "diet_rel", "t5", "diet_abs"):
        for what, dropout in CALLS.items():
            for length in lengths:
                call_request = request(scheme, length, dropout, tokens, device, dtype)
                with torch.set_grad_enabled(dropout is not None):
                    backend = choose_backend(call_request)
                    runs = {
                        name: partial(compute_results, BACKENDS[name], call_request)
                        for name in (backend, *list_candidates(call_request))
                    }
                    timings = in_turn(runs, rounds, clock=CLOCKS[device])
                    best = min(timings, key=lambda timing: timing.median)
                every = ", ".join(f"{t.name} {1000 * t.median:.3g}" for t in timings)
                cells = (scheme, what, length, backend, best.name, f"{1 / best.ratio:.2f}", every)
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--choices", action="store_true")
    parser.add_argument("--device", default="cpu", choices=CLOCKS, help="device of --choices (cpu)")
    parser.add_argument(
        "--bf16", action="store_true", help="use bfloat16 in --choices, also on a CPU"
    )
    parser.add_argument(
        "--tokens", type=int, default=TOKENS, help="tokens of --choices (%(default)s)"
    )
    args = parser.parse_args()
    if args.choices:
        dtype = torch.bfloat16 if args.bf16 or args.device != "cpu" else torch.float32
        choices(args.lengths, args.rounds, args.tokens, args.device, dtype)
        return print(machine())

    others = ["sdpa", "factors"]  # the others need a GPU
    print(f"| call | n | reference | {' | '.join(others)} |\n|{' --- |' * (3 + len(others))}")
    for what, dropout in CALLS.items():
        for length in args.lengths:
            backends = {name: call(name, length, dropout) for name in ("reference", *others)}
            first, *rest = in_turn(backends, args.rounds)
            ratios = " | ".join(f"{timing.ratio:.2f}" for timing in rest)
            print(f"| {what} | {length} | {1000 * first.median:.0f} ms | {ratios} |", flush=True)
    print(machine())


if __name__ == "__main__":
    main()
