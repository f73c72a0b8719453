"""``grid``: trains and evaluates every position scheme on a corpus with the same budget.

A finished cell is one JSON file in the folder of results; a cell that was cut goes on from
fairseq's last checkpoint. ``--table`` prints what is finished as Markdown.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common import cells, grid, train_log
from .chosen import add_corpus
from .corpora.raw import pair_of

#: row of the table -> what `train` is given
ROWS = {
    "none": ["none"],
    "stock sinusoidal": ["stock"],
    "sinusoidal": ["sinusoidal"],
    "learned": ["learned"],
    "shaw": ["shaw"],
    "t5": ["t5"],
    "tupe_a": ["tupe_a"],
    "tupe_r": ["tupe_r"],
    "diet_rel": ["diet_rel"],
    "diet_abs": ["diet_abs"],
    "diet_abs, rank 128": ["diet_abs", "--position-rank", "128"],
}


def add_arguments(parser: ArgumentParser, words: Sequence[str] | None) -> None:
    corpus = add_corpus(parser, words)
    grid.add_arguments(parser, ROWS, corpus.recipe.size, corpus.recipe.updates)
    directions = [f"{a}-{b}" for pair in corpus.pairs for a, b in (pair, pair[::-1])]
    parser.add_argument("--directions", nargs="+", choices=directions, default=["en-de"])
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(corpus.name),
        help="folder with a prepared folder for each pair (%(default)s)",
    )


def run(args: Namespace, more: list[str]) -> int:
    wanted = [
        Cell(row, seed, args, tuple(more), direction)
        for seed in args.seeds
        for direction in args.directions
        for row in args.rows
    ]
    if args.table:
        print(table(wanted))
        return 0
    return cells.run_all(wanted, args.jobs)


@dataclass(frozen=True)
class Cell(grid.Cell):
    """A row, a seed and a direction: trained, and scored on the test set."""

    direction: str

    @property
    def name(self) -> str:
        return self.named(self.budget.size, self.budget.updates, self.direction)

    @property
    def folder(self) -> Path:
        """Of the prepared pair."""
        source, target = self.direction.split("-")
        return self.budget.data / "-".join(pair_of(source, target))

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / self.name

    def steps(self) -> list[tuple[list[str], Path]]:
        names = ("train", "evaluate")
        return [(self.command(name), self.run_folder / f"{name}.out") for name in names]

    def command(self, name: str) -> list[str]:
        scheme, *options = ROWS[self.row]
        words = ["-m", "diet_fairseq", "translation", name, *self.options("corpus"), scheme]
        words += [*self.direction.split("-"), "--run", self.name, "--folder", str(self.folder)]
        words += self.options("size", "gpus")
        if name == "train":
            words += [*self.options("updates"), "--seed", str(self.seed), *options, *self.more]
        return words

    def outcome(self) -> dict[str, Any]:
        budget = self.budget
        return {
            "row": self.row,
            "direction": self.direction,
            "seed": self.seed,
            "size": budget.size,
            "updates": budget.updates,
            **cells.load(self.run_folder / "evaluation-test" / "scores.json"),
            **train_log.totals(self.run_folder / "train.log"),
            "jobs": budget.jobs,
            "gpus": budget.gpus,
        }

    def summary(self, outcome: dict[str, Any]) -> str:
        return f"BLEU {outcome['BLEU']:.2f}, chrF {outcome['chrF']:.2f}"


def table(wanted: list[Cell]) -> str:
    """A table for every direction, and sacreBLEU's signatures."""
    lines = []
    for direction in dict.fromkeys(cell.direction for cell in wanted):
        some = [cell for cell in wanted if cell.direction == direction]
        columns = {name: (name, 2) for name in ("BLEU", "chrF")}
        lines += [*grid.table(direction, some, columns), ""]
        for _, found in [*grid.finished(some)][:1]:
            lines += [f"{name}: `{found[0][f'{name} signature']}`  " for name in columns]
        lines.append("")
    return "\n".join(lines)
