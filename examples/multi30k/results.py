"""Trains and evaluates every position scheme on Multi30k with the same budget.

A finished cell is one JSON file in the folder of results; a cell that was cut goes on from
fairseq's last checkpoint. ``--table`` prints what is finished as Markdown.
"""

import re
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from common import cells

from diet_fairseq.interrupts import interruptible

HERE = Path(__file__).parent
#: row of the table -> what `run.py train` is given
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
DIRECTIONS = ("en-de", "de-en", "en-cs", "cs-en")


def arguments() -> tuple[Namespace, list[str]]:
    parser = ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="What is not known here is passed to fairseq-train.",
        allow_abbrev=False,
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--directions", nargs="+", choices=DIRECTIONS, default=["en-de"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--size", default="tiny", help="(%(default)s)")
    parser.add_argument("--updates", type=int, default=1000, help="(%(default)s)")
    parser.add_argument("--gpus", type=int, default=0, help="per cell; 0: the CPU (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side (%(default)s)")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("multi30k"),
        help="folder with a prepared folder for each pair (%(default)s)",
    )
    parser.add_argument("--results", type=Path, help="where the cells go (DATA/results)")
    parser.add_argument("--table", action="store_true", help="print what is finished, and end")
    return parser.parse_known_args()


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
        return self.budget.data / "-".join(
            sorted(self.direction.split("-"), key=lambda s: s != "en")
        )

    @property
    def result(self) -> Path:
        return (self.budget.results or self.budget.data / "results") / f"{self.name}.json"

    def command(self, name: str) -> list[str]:
        scheme, *options = ROWS[self.row]
        budget = self.budget
        command = [HERE / "run.py", name, scheme, *self.direction.split("-"), "--run", self.name]
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
            bleu, chrf = (cells.spread([one[name] for one in found]) for name in ("BLEU", "chrF"))
            minutes = mean(one["seconds"] for one in found) / 60
            seeds = ", ".join(str(one["seed"]) for one in found)
            parameters = f"{found[0]['parameters']:,}"
            lines.append(f"| {row} | {bleu} | {chrf} | {parameters} | {minutes:.1f} | {seeds} |")
            signatures |= {name: found[0][f"{name} signature"] for name in ("BLEU", "chrF")}
        lines += ["", *(f"{name}: `{text}`  " for name, text in signatures.items()), ""]
    return "\n".join(lines)


def main() -> int:
    args, more = arguments()
    grid = [
        Cell(row, direction, seed, args, tuple(more))
        for seed in args.seeds
        for direction in args.directions
        for row in args.rows
    ]
    if args.table:
        print(table(grid))
        return 0
    return cells.run_all(grid, args.jobs)


if __name__ == "__main__":
    with interruptible(lambda: "the same command goes on from here"):
        sys.exit(main())
