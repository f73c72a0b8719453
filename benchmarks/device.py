"""Training steps of BERT on a GPU: every scheme and backend beside attention without positions.

    python -m benchmarks.device [--lengths 512 2048] [--tokens 16384] [--peak 989]

A step is a training step of fairseq in bfloat16: masked language modelling without padding. The
baseline is `none` with PyTorch's `scaled_dot_product_attention`; it is measured first and last in
every round, so that its two rows show how far the machine drifts. The share of the peak counts the
model's matrix products: 6 operations for each token and weight, and 12 T d for the attention of a
layer; ``--peak`` is in TFLOP/s.

A further step of each row is profiled. Its column `kernels` is the sum of all kernels' times: a
step that takes much longer waits for the CPU. ``--out`` appends one JSON line for each row, with
all kernels. ``--device cpu --size tiny`` tries the command without a GPU.
"""

import argparse
import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from fairseq.trainer import Trainer
from torch.profiler import ProfilerActivity, profile

from diet_fairseq.attention.backends import BACKENDS
from diet_fairseq.models.adapters import PositionalEncoder
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit

from .encoders import ROWS, SHAPES, batch_of, lengths_of, trainer_of
from .harness import append_line, in_turn, machine

BASELINE = ("none", "sdpa")
#: the second row of the baseline, which is measured last
AGAIN = "none, sdpa, again"
#: names of kernels and operators that compute attention, or parts of it
ATTENTION = re.compile(r"flash|fmha|cudnn|attention|softmax|offset")


def computes(scheme: str, backend: str) -> bool:
    """Whether the backend computes the scheme, by other kernels than `sdpa`."""
    limit = Limit(8, "--max-positions")
    kinds = SCHEMES[scheme].create(AttentionShape(1, 4, 4, limit, limit)).kinds
    if backend == "cudnn":  # without a score, or with rows, it is `sdpa`
        return bool(kinds) and kinds <= {"offsets", "factors", "sum", "dense"}
    if backend == "offsets":
        is_table = kinds == {"query_rows"} and SCHEMES[scheme].has_offset_rows
        return is_table or kinds in ({"offsets"}, {"factors"}, {"sum"})
    if backend == "factors":
        return kinds == {"factors"}
    return kinds <= BACKENDS[backend].serves and backend != "banded"  # no row has a window


def build_trainer(scheme: str, args: argparse.Namespace) -> Trainer:
    given = ["--attention-dropout", str(args.attention_dropout)]
    if args.device == "cpu":
        return trainer_of(scheme, args.size, max(args.lengths), given, "--cpu")
    # fairseq takes the GPU by default
    return trainer_of(scheme, args.size, max(args.lengths), [*given, "--bf16"], "--task masked_lm")


def step(trainer: Trainer, backend: str, batch: dict[str, Any]) -> None:
    """A training step with this backend."""
    for module in trainer.get_model().modules():
        if isinstance(module, PositionalEncoder):
            module.stack_config.positions.attention_backend = backend
    trainer.train_step([batch], raise_oom=True)


def count_operations(trainer: Trainer, size: str, sentences: int, length: int) -> float:
    """The floating-point operations of a step's matrix products, without the output layer's."""
    layers, width, _, _ = SHAPES[size]
    weights = sum(
        module.weight.numel()
        for module in trainer.get_model().encoder.sentence_encoder.layers.modules()
        if isinstance(module, torch.nn.Linear)
    )
    return sentences * length * (6 * weights + 12 * layers * length * width)


def now() -> float:
    """The time in seconds, after the GPU has finished all work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def succeeds(name: str, run: Callable[[], object]) -> bool:
    """Run once; print the reason and return False if it fails, for example for lack of memory."""
    try:
        run()
    except Exception as error:  # the other rows are still measured
        print(f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}", flush=True)
        torch.cuda.empty_cache()
        return False
    return True


def profile_kernels(run: Callable[[], object], device: str) -> dict[str, tuple[float, int]]:
    """Milliseconds and calls of each kernel of the device, the longest first."""
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with profile(activities=kinds) as profiler:
        run()
        now()
    times: dict[str, tuple[float, int]] = {}
    for event in profiler.key_averages():
        if event.is_user_annotation:  # a span, such as an optimizer's step
            continue
        on_device = event.device_type != torch.autograd.DeviceType.CPU
        if on_device == (device == "cuda"):
            spent = event.self_device_time_total if on_device else event.self_cpu_time_total
            times[event.key] = (spent / 1000, event.count)
    return dict(sorted(times.items(), key=lambda item: -item[1][0]))


def measure(args: argparse.Namespace, trainers: dict[str, Trainer], length: int) -> None:
    """Print a table for one length, and append its rows to ``--out``."""
    first = trainers[BASELINE[0]]
    sentences = max(1, args.tokens // length)
    batch = batch_of(first.task, lengths_of(None, sentences, length))
    pairs = dict.fromkeys([BASELINE, *product(args.schemes, args.backends)])
    steps: dict[str, Callable[[], None]] = {
        f"{scheme}, {backend}": partial(step, trainers[scheme], backend, batch)
        for scheme, backend in pairs
        if computes(scheme, backend)
    }
    steps[AGAIN] = partial(step, first, BASELINE[1], batch)
    steps = {name: run for name, run in steps.items() if succeeds(f"{name}, n = {length:,}", run)}
    warmup = 2 if args.device == "cuda" else 0
    timings = in_turn(steps, args.rounds, warmup, clock=now)
    operations = count_operations(first, args.size, sentences, length)

    columns = "ms | speed against none | tokens/s | share of peak | kernels, ms | of attention"
    title = f"n = {length:,}, attention dropout {args.attention_dropout:g}"
    print(f"\n| {title} | {columns} |\n|{' --- |' * 7}")
    for timing in timings:
        kernels = profile_kernels(steps[timing.name], args.device)
        attention = sum(ms for kernel, (ms, _) in kernels.items() if ATTENTION.search(kernel))
        total = sum(ms for ms, _ in kernels.values())
        share = operations / timing.median / (1e12 * args.peak)
        cells = f"{1000 * timing.median:.1f} | {timing.ratio:.2f}"
        cells += f" | {sentences * length / timing.median:,.0f} | {share:.1%}"
        print(f"| {timing.name} | {cells} | {total:.1f} | {attention:.1f} |", flush=True)
        if args.out:
            record = {
                "row": timing.name,
                "size": args.size,
                "n": length,
                "attention dropout": args.attention_dropout,
                "seconds": timing.seconds,
                "median": statistics.median(timing.seconds),
                "speed": timing.ratio,
                "kernels": kernels,
            }
            append_line(args.out, record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="base", choices=SHAPES)
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 2048])
    parser.add_argument("--tokens", type=int, default=16384, help="tokens in a batch (%(default)s)")
    parser.add_argument("--schemes", nargs="+", default=list(ROWS), choices=SCHEMES)
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument(
        "--attention-dropout", type=float, default=0.0, help="attention dropout (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--peak",
        type=float,
        default=989,
        help="peak of the GPU in TFLOP/s (default: an H100's and H200's, %(default)s)",
    )
    parser.add_argument("--out", type=Path, help="file of JSON lines to append to")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU; try the command with --device cpu")

    # the trainers of all schemes fit into a GPU's memory together
    schemes = dict.fromkeys([BASELINE[0], *args.schemes])
    trainers = {scheme: build_trainer(scheme, args) for scheme in schemes}
    for length in args.lengths:
        measure(args, trainers, length)
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print({**machine(), "device": name})


if __name__ == "__main__":
    main()
