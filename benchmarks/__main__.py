"""All benchmarks in short, and their floors: ``python -m benchmarks``, or ``make bench``.

``--compare FOLDER`` measures nothing: it compares the floors with figures that benchmarks wrote
with ``--out``. The compared numbers are speeds relative to stock fairseq, because times depend on
the machine. A speed fails below `MARGIN` of its floor. Unknown options are passed to the
benchmarks.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from . import encoders, translation


class Step(NamedTuple):
    """A benchmark, its description, its minutes on an idle machine, and its options."""

    name: str
    description: str
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
MARGIN = 0.9
#: patterns of file and row -> how many times as fast as stock; the first pattern that fits counts
FLOORS = (
    ("*", "stock, bf16", 0.0),
    ("training_*", "stock", 0.0),
    ("training_*", "shaw", 0.95),
    ("training_*", "diet_*", 1.1),
    ("training_*", "*", 1.05),
    ("generation*", "* search", 0.0),
    ("generation*", "stock", 0.0),
    ("generation*", "stock+", 0.9),
    ("generation*", "*CTranslate2*", 0.0),
    ("generation*", "*", 1.3),
    ("encoders-*", "stock", 0.0),
    ("encoders-*-full-inference*", "shaw", 0.0),
    ("encoders-*-full-inference*", "*", 0.97),
    ("encoders-*", "*", 1.0),
    ("linear-attention-forward-8192*", "*lin*", 4.0),
    ("linear-layer-forward-8192*", "*lin*", 2.5),
)


def floor_of(file: str, row: str) -> float:
    floors = (floor for files, rows, floor in FLOORS if fnmatch(file, files) and fnmatch(row, rows))
    return next(floors, 0.0)


def rows_with_floors(folder: Path) -> Iterator[tuple[str, str, float, float]]:
    """File, row, ratio and floor."""
    for path in sorted(folder.rglob("*.json")):
        timings = json.loads(path.read_text()).get("timings", [])
        if not timings or not timings[0]["name"].startswith("stock"):
            continue  # the ratios are not against stock
        for timing in timings:
            floor = floor_of(path.name, timing["name"])
            if floor:
                yield path.name, timing["name"], statistics.median(timing["ratios"]), floor


def compare(folder: Path) -> None:
    """Print the ratios beside their floors, and exit with an error if one is too slow."""
    rows = list(rows_with_floors(folder))
    if not rows:
        sys.exit(f"{folder} holds no figures that have a floor: run benchmarks with --out {folder}")
    print("| file | row | ratio | floor | |\n| --- | --- | --- | --- | --- |")
    slow = 0
    for file, row, ratio, floor in rows:
        fails = ratio < MARGIN * floor
        slow += fails
        verdict = "too slow" if fails else "below, within the margin" if ratio < floor else ""
        print(f"| {file} | {row} | {ratio:.2f} | {floor:.2f} | {verdict} |")
    if slow:
        sys.exit(f"{slow} of {len(rows)} ratios are below {MARGIN} of their floor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="(default: %(default)s)")
    add("--out", type=Path, default=Path("bench"), help="folder for figures (default: %(default)s)")
    add("--compare", type=Path, metavar="FOLDER", help="compare finished figures only")
    args, options = parser.parse_known_args()
    if args.compare:
        compare(args.compare)
        return
    minutes = sum(step.minutes for step in STEPS) * args.rounds / 3
    print(f"Every scheme against stock fairseq, {args.rounds} rounds: about {minutes:.0f} minutes")
    for step in STEPS:
        print(f"  {step.name}: {step.description}")
    print(f"The figures go to {args.out}/, and are compared with their floors.", flush=True)
    for step in STEPS:
        print(f"\n{step.name}", flush=True)
        words = ["--rounds", str(args.rounds), "--out", str(args.out), *step.options, *options]
        sys.argv[1:] = words
        step.main()
    print(f"\nfloors; the figures are in {args.out}/", flush=True)
    compare(args.out)


if __name__ == "__main__":
    main()
