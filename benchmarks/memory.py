"""Peak memory of a training step without attention dropout, by attention backend.

    python -m benchmarks.memory [--size base] [--length 512] [--batch 8] [--schemes diet_abs tupe_a]

A process trains one step of masked language modelling with fairseq's trainer. The figure is the
peak of its resident memory, minus the memory of the parameters and the optimizer's state before
the step.
"""

import argparse

import torch

from diet_fairseq.attention.backends import BACKENDS
from diet_fairseq.positions import SCHEMES

from .encoders import SHAPES, STOCK, batch_of, trainer_of
from .harness import forget_peak, in_fork, machine, memory


def peak(scheme: str, backend: str, args: argparse.Namespace) -> float:
    """The peak in MiB."""
    model_options = ["--attention-dropout", "0"]
    model_options += [] if scheme == STOCK else ["--attention-backend", backend]
    trainer = trainer_of(scheme, args.size, args.length, model_options)
    # the optimizer's state comes with the first step
    trainer.train_step([batch_of(trainer.task, torch.tensor([8]))])
    batch = batch_of(trainer.task, torch.full((args.batch,), args.length))
    before = memory("VmRSS")
    forget_peak()
    trainer.train_step([batch])
    return memory("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", choices=SHAPES)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8, help="sentences (%(default)s)")
    parser.add_argument("--schemes", nargs="+", default=["diet_abs", "tupe_a"], choices=SCHEMES)
    parser.add_argument("--backends", nargs="+", default=["reference", "factors"], choices=BACKENDS)
    args = parser.parse_args()

    print("| scheme | attention | peak | ratio |\n| --- | --- | --- | --- |")
    for scheme in args.schemes:
        peaks = [in_fork(peak, scheme, backend, args) for backend in args.backends]
        for backend, mib in zip(args.backends, peaks, strict=True):
            print(f"| {scheme} | {backend} | {mib:.0f} MiB | {mib / peaks[0]:.2f} |", flush=True)
    print(machine())


if __name__ == "__main__":
    main()
