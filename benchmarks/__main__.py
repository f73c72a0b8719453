"""All benchmarks in short, and their floors: ``python -m benchmarks``, or ``make bench``.

What is not known here is passed to the benchmarks.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from . import encoders, guard, translation


class Step(NamedTuple):
    """A benchmark, what it does in words, and the minutes that takes on an idle machine."""

    name: str
    what: str
    minutes: float
    main: Callable[[], None]
    options: list[str]


STEPS = (
    Step("translation", "train, translate, peak memory: `_tiny`", 6, translation.main, []),
    Step(
        "encoders", "inference and training: `_small`, 128 tokens", 2, encoders.main,
        ["--sizes", "small", "--lengths", "128"],
    ),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("bench"), help="folder for the figures (%(default)s)"
    )
    args, more = parser.parse_known_args()
    minutes = sum(step.minutes for step in STEPS) * args.rounds / 3
    print(f"Every scheme against stock fairseq, {args.rounds} rounds: about {minutes:.0f} minutes")
    for step in STEPS:
        print(f"  {step.name}: {step.what}")
    print(f"The figures go to {args.out}/, and are compared with their floors.", flush=True)

    for step in STEPS:
        print(f"\n{step.name}", flush=True)
        sys.argv[1:] = ["--rounds", str(args.rounds), "--out", str(args.out), *step.options, *more]
        step.main()
    print(f"\nfloors; the figures are in {args.out}/", flush=True)
    sys.argv[1:] = [str(args.out)]
    guard.main()


if __name__ == "__main__":
    main()
