"""Grids of rows and seeds within one budget: their command line, their cells, their table."""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from . import cells

#: a row of the table -> the scheme and options that it is trained with
Rows = Mapping[str, Sequence[str]]


def add_arguments(parser: ArgumentParser, rows: Rows, size: str, updates: int) -> None:
    parser.add_argument("--rows", nargs="+", choices=rows, default=list(rows), metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--size", default=size, help="(%(default)s)")
    parser.add_argument("--updates", type=int, default=updates, help="(%(default)s)")
    parser.add_argument("--gpus", type=int, default=0, help="per cell; 0: the CPU (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side (%(default)s)")
    parser.add_argument("--results", type=Path, help="where the cells go (DATA/results)")
    parser.add_argument("--table", action="store_true", help="print what is finished, and end")


@dataclass(frozen=True)
class Cell(cells.Cell):
    """A row and a seed.

    Attributes:
        budget: the command line, which all cells have in common
        more: what fairseq-train is given besides
    """

    row: str
    seed: int
    budget: Namespace
    more: tuple[str, ...]

    @property
    def result(self) -> Path:
        return (self.budget.results or self.budget.data / "results") / f"{self.name}.json"

    def named(self, *parts: object) -> str:
        """The name of a cell whose row, seed and these other parts tell it from others."""
        row = re.sub(r"\W+", "-", self.row)
        return "_".join(map(str, (row, *parts, f"seed{self.seed}", *nameable(self.more))))

    def options(self, *names: str) -> list[str]:
        """Those of the budget that are given, as on a command line."""
        given = ((name, getattr(self.budget, name)) for name in names)
        return [
            word for name, value in given if value is not None for word in (f"--{name}", str(value))
        ]


def nameable(words: Sequence[str]) -> list[str]:
    """Words of a command line as parts of a file's name: with others, it is another run."""
    return [re.sub(r"[^\w.+=-]+", "~", word.removeprefix("--")) for word in words]


def finished(grid: Iterable[Cell]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Row by row, what came out for its seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in grid:
        done = found.setdefault(cell.row, [])
        if cell.result.exists():
            done.append(cells.load(cell.result))
    yield from ((row, done) for row, done in found.items() if done)


def table(title: str, grid: Iterable[Cell], columns: Mapping[str, tuple[str, int]]) -> list[str]:
    """Markdown: rows against means over seeds.

    ``columns``: a head -> what it is called in the JSON files, and how many digits are shown.
    """
    heads = [title, *columns, "parameters", "minutes", "seeds"]
    lines = [heads, ["---"] * len(heads)]
    for row, found in finished(grid):
        values = [
            mean_and_deviation([one[name] for one in found], digits)
            for name, digits in columns.values()
        ]
        minutes = mean(one["seconds"] for one in found) / 60
        seeds = ", ".join(str(one["seed"]) for one in found)
        lines.append([row, *values, f"{found[0]['parameters']:,}", f"{minutes:.1f}", seeds])
    return [f"| {' | '.join(line)} |" for line in lines]


def mean_and_deviation(scores: list[float], digits: int) -> str:
    """The mean and, of several, the standard deviation."""
    deviation = f" ± {stdev(scores):.{digits}f}" if len(scores) > 1 else ""
    return f"{mean(scores):.{digits}f}{deviation}"
