"""Peak memory of a training step without attention dropout, by how attention is computed.

    python -m benchmarks.memory [--size base] [--length 512] [--batch 8] [--schemes diet_abs tupe_a]

A step of fairseq's trainer on masked language modelling, in a process of its own: the peak of
resident memory above what the process had before, parameters and optimizer's state included there.
"""

import argparse
import multiprocessing
from pathlib import Path
from typing import Any

import torch

import diet_fairseq
from diet_fairseq.config import BACKENDS
from diet_fairseq.positions import SCHEMES

from .encoders import SHAPES, STOCK, batch_of, trainer_of
from .harness import machine
from .linear import status


def peak_of(scheme: str, backend: str, args: argparse.Namespace) -> float:
    """MiB"""
    forked = multiprocessing.get_context("fork")
    ours, theirs = forked.Pipe(duplex=False)
    process = forked.Process(target=send_peak, args=(scheme, backend, args, theirs))
    process.start()
    theirs.close()
    peak = ours.recv()
    process.join()
    return peak


def send_peak(scheme: str, backend: str, args: argparse.Namespace, pipe: Any) -> None:
    more = ["--attention-dropout", "0"]
    more += [] if scheme == STOCK else ["--attention-backend", backend]
    trainer = trainer_of(scheme, args.size, args.length, more)
    # the optimizer's state comes with the first step
    trainer.train_step([batch_of(trainer.task, torch.tensor([8]))])
    batch = batch_of(trainer.task, torch.full((args.batch,), args.length))
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    trainer.train_step([batch])
    pipe.send(status("VmHWM") - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", choices=SHAPES)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8, help="sentences (%(default)s)")
    parser.add_argument("--schemes", nargs="+", default=["diet_abs", "tupe_a"], choices=SCHEMES)
    parser.add_argument(
        "--backends", nargs="+", default=["reference", "recompute", "factors"], choices=BACKENDS
    )
    args = parser.parse_args()

    print("| scheme | attention | peak | ratio |\n| --- | --- | --- | --- |")
    for scheme in args.schemes:
        peaks = [peak_of(scheme, backend, args) for backend in args.backends]
        for backend, peak in zip(args.backends, peaks, strict=True):
            print(f"| {scheme} | {backend} | {peak:.0f} MiB | {peak / peaks[0]:.2f} |", flush=True)
    print({**machine(), "diet_fairseq": diet_fairseq.__version__})


if __name__ == "__main__":
    main()
