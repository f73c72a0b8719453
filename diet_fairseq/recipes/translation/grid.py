"""``grid``: trains and evaluates every position scheme on a corpus with the same budget.

A finished cell is one JSON file in the folder of results; a cell that was cut goes on from
fairseq's last checkpoint. ``--table`` prints what is finished as Markdown.
"""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from ..common import cells
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
    directions = [f"{a}-{b}" for pair in corpus.pairs for a, b in (pair, pair[::-1])]
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--directions", nargs="+", choices=directions, default=["en-de"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--size", default=corpus.recipe.size, help="(%(default)s)")
    parser.add_argument("--updates", type=int, default=corpus.recipe.updates, help="(%(default)s)")
    parser.add_argument("--gpus", type=int, default=0, help="per cell; 0: the CPU (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side (%(default)s)")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(corpus.name),
        help="folder with a prepared folder for each pair (%(default)s)",
    )
    parser.add_argument("--results", type=Path, help="where the cells go (DATA/results)")
    parser.add_argument("--table", action="store_true", help="print what is finished, and end")


def grid(args: Namespace, more: list[str]) -> int:
    wanted = [
        Cell(row, direction, seed, args, tuple(more))
        for seed in args.seeds
        for direction in args.directions
        for row in args.rows
    ]
    if args.table:
        print(table(wanted))
        return 0
    return cells.run_all(wanted, args.jobs)


@dataclass(frozen=True)
class Cell:
    """One run: a row, a direction, a seed, within the budget that all have in common."""

    row: str
    direction: str
    seed: int
    budget: Namespace
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        row = re.sub(r"\W+", "-", self.row)
        budget = f"{self.budget.size}_{self.budget.updates}"
        return f"{row}_{budget}_{self.direction}_seed{self.seed}{cells.given(self.more)}"

    @property
    def folder(self) -> Path:
        """Of the prepared pair; English is always named first."""
        source, target = self.direction.split("-")
        return self.budget.data / "-".join(pair_of(source, target))

    @property
    def result(self) -> Path:
        return (self.budget.results or self.budget.data / "results") / f"{self.name}.json"

    def command(self, name: str) -> list[str]:
        scheme, *options = ROWS[self.row]
        budget = self.budget
        command: list[Any] = ["-m", "diet_fairseq", "translation", name, "--corpus", budget.corpus]
        command += [scheme, *self.direction.split("-"), "--run", self.name]
        command += ["--folder", self.folder, "--size", budget.size, "--gpus", budget.gpus]
        if name == "train":
            command += ["--updates", budget.updates, "--seed", self.seed, *options, *self.more]
        return [str(part) for part in command]

    def run(self) -> str:
        """Train and evaluate, unless that is done; returns what came out in a line."""
        if self.result.exists():
            return "done before"
        run = self.folder / "runs" / self.name
        for name in ("train", "evaluate"):
            failure = cells.run_logged(self.command(name), run / f"{name}.out")
            if failure:
                return failure
        scores = cells.load(run / "evaluation-test" / "scores.json")
        found = {
            "row": self.row,
            "direction": self.direction,
            "seed": self.seed,
            "size": self.budget.size,
            "updates": self.budget.updates,
            **scores,
            **cells.read_log(run / "train.log"),
            "jobs": self.budget.jobs,
            "gpus": self.budget.gpus,
        }
        cells.save(self.result, found, self.command("train"))
        return f"BLEU {scores['BLEU']:.2f}, chrF {scores['chrF']:.2f}"


def table(grid: list[Cell]) -> str:
    """Markdown: rows against means over seeds, the spread behind them."""
    lines = []
    for direction in dict.fromkeys(cell.direction for cell in grid):
        lines += [
            f"| {direction} | BLEU | chrF | parameters | minutes | seeds |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        signatures: dict[str, str] = {}
        for row in ROWS:
            found = [
                cells.load(cell.result)
                for cell in grid
                if (cell.row, cell.direction) == (row, direction) and cell.result.exists()
            ]
            if not found:
                continue
            bleu, chrf = (
                cells.mean_and_deviation([one[name] for one in found]) for name in ("BLEU", "chrF")
            )
            minutes = mean(one["seconds"] for one in found) / 60
            seeds = ", ".join(str(one["seed"]) for one in found)
            parameters = f"{found[0]['parameters']:,}"
            lines.append(f"| {row} | {bleu} | {chrf} | {parameters} | {minutes:.1f} | {seeds} |")
            signatures |= {name: found[0][f"{name} signature"] for name in ("BLEU", "chrF")}
        lines += ["", *(f"{name}: `{text}`  " for name, text in signatures.items()), ""]
    return "\n".join(lines)
