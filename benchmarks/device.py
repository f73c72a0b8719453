"""A GPU's training step with every scheme and backend, against attention without positions.

    python -m benchmarks.device [--lengths 512 2048] [--tokens 16384] [--peak 989]

fairseq's trainer in bfloat16, masked language modelling, nothing padded, attention dropout 0 unless
asked for; the baseline is `none` with PyTorch's `scaled_dot_product_attention`. Beside the ratio
stand tokens per second and the share of the device's ``--peak`` TFLOP/s that the model's products
make, counted as 6 for every token and weight in them, and 12 T d for every layer's attention.
``--device cpu --size tiny`` tries the command where there is no GPU.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.trainer import Trainer

import diet_fairseq
from diet_fairseq.attention.backends import BACKENDS
from diet_fairseq.config import PositionConfig
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES
from diet_fairseq.stack.encoder import PositionalEncoder

from .encoders import ROWS, SHAPES, batch_of, lengths_of, trainer_of
from .harness import Timing, in_turn, machine, save

BASELINE = ("none", "sdpa")


def candidates(args: argparse.Namespace) -> list[tuple[str, str]]:
    """The baseline, and every scheme with each backend that computes it."""
    pairs = [BASELINE, *product(args.schemes, args.backends)]
    return [pair for pair in dict.fromkeys(pairs) if computes(*pair)]


def computes(scheme: str, backend: str) -> bool:
    """Whether the backend computes the scheme, and not as another one does."""
    kind = SCHEMES[scheme]
    if not {"factors": kind.factored, "offsets": kind.of_offsets}.get(backend, True):
        return False
    given = argparse.Namespace(attention_backend=backend)
    ARCH_CONFIG_REGISTRY[f"roberta_{scheme}"](given)
    try:
        PositionConfig.of(given)
    except UserError:
        return False
    return True


def trainers_of(args: argparse.Namespace) -> dict[str, Trainer]:
    """Of every scheme; all fit into a GPU's memory together."""
    where = "--bf16" if args.device == "cuda" else "--cpu"
    more = ["--attention-dropout", str(args.attention_dropout)]
    schemes = dict.fromkeys([BASELINE[0], *args.schemes])
    return {s: trainer_of(s, args.size, max(args.lengths), more, where) for s in schemes}


def step(trainer: Trainer, backend: str, batch: dict[str, Any]) -> None:
    """A training step with this backend, which is no part of the model's state."""
    for module in trainer.get_model().modules():
        if isinstance(module, PositionalEncoder):
            module.placement.config.attention_backend = backend
    trainer.train_step([batch], raise_oom=True)


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


def fits(run: Callable[[], None]) -> bool:
    """Run it once, and forget what it took if the device's memory is too small."""
    try:
        run()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return False
    return True


def measure(
    args: argparse.Namespace, trainers: dict[str, Trainer], length: int
) -> tuple[list[Timing], int, float]:
    """Timings, and a step's tokens and products."""
    first = trainers[BASELINE[0]]
    sentences = max(1, args.tokens // length)
    batch = batch_of(first.task, lengths_of(None, sentences, length))
    steps = {
        f"{scheme}, {backend}": partial(step, trainers[scheme], backend, batch)
        for scheme, backend in candidates(args)
    }
    for name in [name for name, run in steps.items() if not fits(run)]:
        print(f"{name}, n = {length:,}: more than the device's memory")
        del steps[name]
    timings = in_turn(steps, args.rounds, warmup=2, clock=now)
    return timings, sentences * length, flop_of(first, args.size, sentences, length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="base", choices=SHAPES)
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 2048])
    parser.add_argument("--tokens", type=int, default=16384, help="in a batch (%(default)s)")
    parser.add_argument("--schemes", nargs="+", default=list(ROWS), choices=SCHEMES)
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument("--attention-dropout", type=float, default=0.0, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--peak", type=float, default=989, help="H100's and H200's (%(default)s)")
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU here: take --device cpu to try the rest")

    trainers = trainers_of(args)
    for length in args.lengths:
        timings, tokens, flop = measure(args, trainers, length)
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
