"""A GPU's training step with every scheme and backend, against attention without positions.

    python -m benchmarks.device [--lengths 512 2048] [--tokens 16384] [--peak 989]

fairseq's trainer in bfloat16, masked language modelling, attention dropout 0, nothing padded; the
baseline is `none` with PyTorch's `scaled_dot_product_attention`. Beside the ratio stand tokens per
second and the share of the device's ``--peak`` TFLOP/s that the model's products make, counted as
6 for every token and weight in them, and 12 T d for every layer's attention. ``--device cpu
--size tiny`` tries the command where there is no GPU.
"""

import argparse
import time
from functools import partial
from itertools import product
from pathlib import Path

import torch
from fairseq.trainer import Trainer

import diet_fairseq
from diet_fairseq.attention.backends import BACKENDS
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES

from .encoders import ROWS, SHAPES, batch_of, lengths_of, trainer_of
from .harness import Timing, in_turn, machine, save

BASELINE = ("none", "sdpa")


def trainers_of(args: argparse.Namespace, length: int) -> dict[str, Trainer]:
    """Of every scheme with each backend that computes it, the baseline first."""
    found = {}
    where = "--bf16" if args.device == "cuda" else "--cpu"
    for scheme, backend in (BASELINE, *product(args.schemes, args.backends)):
        more = ["--attention-backend", backend, "--attention-dropout", "0"]
        try:
            trainer = trainer_of(scheme, args.size, length, more, where)
        except UserError:
            continue  # not this backend
        found[f"{scheme}, {backend}"] = trainer
    return found


def flop_of(trainer: Trainer, size: str, sentences: int, length: int) -> float:
    """The products of a step: those of the head, of masked tokens alone, left out."""
    layers, width, _, _ = SHAPES[size]
    weights = sum(
        module.weight.numel()
        for module in trainer.get_model().encoder.sentence_encoder.layers.modules()
        if isinstance(module, torch.nn.Linear)
    )
    return sentences * length * (6 * weights + 12 * layers * length * width)


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(args: argparse.Namespace, length: int) -> tuple[list[Timing], int, float]:
    """Timings, and a step's tokens and products."""
    trainers = trainers_of(args, length)
    first = next(iter(trainers.values()))
    sentences = max(1, args.tokens // length)
    batch = batch_of(first.task, lengths_of(None, sentences, length))
    steps = {name: partial(t.train_step, [batch]) for name, t in trainers.items()}
    timings = in_turn(steps, args.rounds, warmup=3, clock=now)
    return timings, sentences * length, flop_of(first, args.size, sentences, length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="base", choices=SHAPES)
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 2048])
    parser.add_argument("--tokens", type=int, default=16384, help="in a batch (%(default)s)")
    parser.add_argument("--schemes", nargs="+", default=list(ROWS), choices=SCHEMES)
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--peak", type=float, default=989, help="H100's and H200's (%(default)s)")
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU here: take --device cpu to try the rest")

    for length in args.lengths:
        timings, tokens, flop = measure(args, length)
        print(f"\n| n = {length:,} | ms | tokens/s | peak's share | ratio |\n|{' --- |' * 5}")
        for timing in timings:
            share = flop / timing.median / (1e12 * args.peak)
            rate = tokens / timing.median
            cells = f"{1000 * timing.median:.1f} | {rate:,.0f} | {share:.1%} | {timing.ratio:.2f}"
            print(f"| {timing.name} | {cells} |", flush=True)
        if args.out:
            save(args.out / f"device-{args.size}-{length}.json", "training step", timings)
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print({**machine(), "device": name, "diet_fairseq": diet_fairseq.__version__})


if __name__ == "__main__":
    main()
