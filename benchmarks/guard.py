"""Is everything still as quick as it is meant to be? Finished benchmarks against their floors.

    python -m benchmarks.guard FOLDER

FOLDER holds what the benchmarks wrote with ``--out``. Ratios to stock fairseq are compared, which
another machine shares, and not times, which it doesn't; a ratio fails below `MARGIN` of its floor.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

MARGIN = 0.9
#: for files and rows that match, the first line that does: how many times as fast as stock
FLOORS = (
    ("*", "stock, bf16", 0.0),
    ("training_*", "stock", 0.0),
    ("training_*", "shaw", 0.95),
    ("training_*", "diet_*", 1.1),
    ("training_*", "*", 1.05),
    ("generation*", "* search", 0.0),
    ("generation*", "stock", 0.0),
    ("generation*", "*CTranslate2", 0.0),
    ("generation*", "*", 1.3),
    ("encoders-*", "stock", 0.0),
    ("encoders-*-full-inference*", "shaw", 0.0),
    ("encoders-*-full-inference*", "*", 0.97),
    ("encoders-*", "*", 1.0),
    ("linear-attention-forward-8192*", "*lin*", 4.0),
    ("linear-layer-forward-8192*", "*lin*", 2.5),
)


def floor_of(file: str, row: str) -> float:
    found = (floor for files, rows, floor in FLOORS if fnmatch(file, files) and fnmatch(row, rows))
    return next(found, 0.0)


def compared(folder: Path) -> Iterator[tuple[str, str, float, float]]:
    """File, row, ratio and floor of all that has a floor."""
    for path in sorted(folder.rglob("*.json")):
        timings = json.loads(path.read_text()).get("timings", [])
        if not timings or not timings[0]["name"].startswith("stock"):
            continue  # compared among each other
        for timing in timings:
            floor = floor_of(path.name, timing["name"])
            if floor:
                yield path.name, timing["name"], statistics.median(timing["ratios"]), floor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    rows = list(compared(folder))
    if not rows:
        sys.exit(f"{folder} holds no figures that have a floor: run benchmarks with --out {folder}")
    print("| file | row | ratio | floor | |\n| --- | --- | --- | --- | --- |")
    slow = 0
    for file, row, ratio, floor in rows:
        fails = ratio < MARGIN * floor
        slow += fails
        word = "too slow" if fails else "below, within the margin" if ratio < floor else ""
        print(f"| {file} | {row} | {ratio:.2f} | {floor:.2f} | {word} |")
    if slow:
        sys.exit(f"{slow} of {len(rows)} ratios are below {MARGIN} of their floor")


if __name__ == "__main__":
    main()
