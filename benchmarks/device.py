"""A GPU's training step with every scheme and backend, against attention without positions.

    python -m benchmarks.device [--lengths 512 2048] [--tokens 16384] [--peak 989]

fairseq's trainer in bfloat16, masked language modelling, nothing padded, attention dropout 0 unless
asked for; the baseline is `none` with PyTorch's `scaled_dot_product_attention`. The backend "split"
is `benchmarks.split`. Beside the ratio stand tokens per second and the share of the device's
``--peak`` TFLOP/s that the model's products make, counted as 6 for every token and weight in them,
and 12 T d for every layer's attention.
A further step of each row is profiled: the table below names the row's attention kernels, and
``--out`` keeps the times of all its kernels. ``--trainers`` compares fairseq's Adam and PyTorch's
fused one, which both copy parameters to float32 for every update, with float32 parameters that
autocast rounds. ``--device cpu --size tiny`` tries the command where there is no GPU.
"""

import argparse
import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from fairseq.trainer import Trainer
from torch.profiler import ProfilerActivity, profile

from diet_fairseq.attention.backends import BACKENDS
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.stack.encoder import PositionalEncoder

from .encoders import ROWS, SHAPES, batch_of, lengths_of, trainer_of
from .harness import Timing, in_turn, machine, save
from .split import split

BASELINE = ("none", "sdpa")
#: `benchmarks.split`, which is no backend of the package
SPLIT = "split"
OFFSETS = ("offsets", SPLIT)


#: options of fairseq's trainer on a GPU
TRAINERS = {
    "adam": ["--optimizer", "adam", "--bf16"],
    "fused_adamw": ["--optimizer", "fused_adamw", "--bf16"],
    "autocast": ["--optimizer", "fused_adamw"],
}
#: names of kernels and operators that compute attention, or parts of it
ATTENTION = re.compile(r"flash|fmha|cudnn|attention|softmax|offset")


def candidates(args: argparse.Namespace) -> list[tuple[str, str]]:
    """The baseline, and every scheme with each backend that computes it."""
    pairs = [BASELINE, *product(args.schemes, args.backends)]
    return [pair for pair in dict.fromkeys(pairs) if computes(*pair)]


def computes(scheme: str, backend: str) -> bool:
    """Whether the backend computes the scheme, and in another way than the other backends."""
    needed = {"factors": "factors", "offsets": "offsets", SPLIT: "offsets"}.get(backend)
    serves = BACKENDS["offsets" if backend == SPLIT else backend].serves
    limit = Limit(8, "--max-positions")
    kinds = SCHEMES[scheme].create(AttentionShape(1, 4, 4, limit, limit)).kinds
    return kinds <= serves and (needed is None or kinds == {needed})


def trainers_of(args: argparse.Namespace) -> dict[tuple[str, str], Trainer]:
    """A trainer for each of --trainers and each scheme; all fit into a GPU's memory together."""
    schemes = dict.fromkeys([BASELINE[0], *args.schemes])
    pairs = product(args.trainers, schemes)
    return {(kind, scheme): trainer_with(kind, scheme, args) for kind, scheme in pairs}


def trainer_with(kind: str, scheme: str, args: argparse.Namespace) -> Trainer:
    given = ["--attention-dropout", str(args.attention_dropout), *TRAINERS[kind]]
    where = "--task masked_lm"  # the GPU, by default
    if args.device == "cpu":
        where = "--cpu"
        given = [option for option in given if option != "--bf16"]
    trainer = trainer_of(scheme, args.size, max(args.lengths), given, where)
    if kind == "autocast":
        model = trainer.get_model()
        model.forward = torch.autocast(args.device, torch.bfloat16)(model.forward)
    return trainer


def step(trainer: Trainer, backend: str, batch: dict[str, Any]) -> None:
    """A training step with this backend."""
    rival = {"offsets": replace(BACKENDS["offsets"], compute=split)} if backend == SPLIT else {}
    for module in trainer.get_model().modules():
        if isinstance(module, PositionalEncoder):
            module.placement.config.attention_backend = "offsets" if rival else backend
    with patch.dict(BACKENDS, rival):
        trainer.train_step([batch], raise_oom=True)


def flop_of(trainer: Trainer, size: str, sentences: int, length: int) -> float:
    """The FLOP of a step's matrix products, without the output layer's."""
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


def runs(name: str, run: Callable[[], None]) -> bool:
    """Run once; say why and return False if it fails, as for lack of memory."""
    try:
        run()
    except Exception as error:  # the other rows go on
        print(f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}", flush=True)
        torch.cuda.empty_cache()
        return False
    return True


def kernels_of(run: Callable[[], None], device: str) -> dict[str, tuple[float, int]]:
    """Milliseconds and calls of each kernel of the device, the longest first."""
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with profile(activities=kinds) as profiler:
        run()
        now()
    times: dict[str, tuple[float, int]] = {}
    for event in profiler.key_averages():
        on_device = event.device_type != torch.autograd.DeviceType.CPU
        if on_device == (device == "cuda"):
            spent = event.self_device_time_total if on_device else event.self_cpu_time_total
            times[event.key] = (spent / 1000, event.count)
    return dict(sorted(times.items(), key=lambda item: -item[1][0]))


def profiles(
    args: argparse.Namespace, steps: dict[str, Callable[[], None]], length: int
) -> dict[str, dict[str, tuple[float, int]]]:
    """Print the attention kernels of every row, and write the times of all kernels to --out."""
    kernels: dict[str, dict[str, tuple[float, int]]] = {}
    print(f"\n| n = {length:,} | attention's kernels: ms in a step, calls | all |\n|{' --- |' * 3}")
    for name, run in steps.items():
        kernels[name] = kernels_of(run, args.device)
        attention = "; ".join(
            f"{kernel[:90]}: {ms:.2f}, {calls}"
            for kernel, (ms, calls) in kernels[name].items()
            if ATTENTION.search(kernel)
        )
        whole = sum(ms for ms, _ in kernels[name].values())
        print(f"| {name} | {attention.replace('|', '/')} | {whole:.1f} |", flush=True)
        if args.out:
            path = args.out / f"kernels-{args.size}-{length}.json"
            path.write_text(json.dumps(kernels, indent=1) + "\n")
    return kernels


def measure(
    args: argparse.Namespace, trainers: dict[tuple[str, str], Trainer], length: int
) -> tuple[dict[str, Callable[[], None]], list[Timing], int, float]:
    """The steps, their timings, and a step's tokens and products."""
    first = trainers[args.trainers[0], BASELINE[0]]
    sentences = max(1, args.tokens // length)
    batch = batch_of(first.task, lengths_of(None, sentences, length))
    steps: dict[str, Callable[[], None]] = {
        ", ".join([scheme, backend, *[kind] * (len(args.trainers) > 1)]): partial(
            step, trainers[kind, scheme], backend, batch
        )
        for kind in args.trainers
        for scheme, backend in candidates(args)
    }
    steps = {name: run for name, run in steps.items() if runs(f"{name}, n = {length:,}", run)}
    timings = in_turn(steps, args.rounds, warmup=2, clock=now)
    return steps, timings, sentences * length, flop_of(first, args.size, sentences, length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="base", choices=SHAPES)
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 2048])
    parser.add_argument("--tokens", type=int, default=16384, help="in a batch (%(default)s)")
    parser.add_argument("--schemes", nargs="+", default=list(ROWS), choices=SCHEMES)
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=[*BACKENDS, SPLIT])
    parser.add_argument("--trainers", nargs="+", default=["adam"], choices=TRAINERS)
    parser.add_argument("--attention-dropout", type=float, default=0.0, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--peak", type=float, default=989, help="H100's and H200's (%(default)s)")
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU here: take --device cpu to try the rest")

    trainers = trainers_of(args)
    for length in args.lengths:
        steps, timings, tokens, flop = measure(args, trainers, length)
        print(f"\n| n = {length:,} | ms | tokens/s | peak's share | ratio |\n|{' --- |' * 5}")
        for timing in timings:
            share = flop / timing.median / (1e12 * args.peak)
            rate = tokens / timing.median
            cells = f"{1000 * timing.median:.1f} | {rate:,.0f} | {share:.1%} | {timing.ratio:.2f}"
            print(f"| {timing.name} | {cells} |", flush=True)
        if args.out:
            save(args.out / f"device-{args.size}-{length}.json", "training step", timings)
        profiles(args, steps, length)
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print({**machine(), "device": name})


if __name__ == "__main__":
    main()
