"""``grid run|table|plot GRID.toml``: trains what is missing, and shows what is finished."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import split
from typing import Any

from ...errors import UserError
from ..common import cells
from ..common.options import at_least
from . import outcome, table
from .spec import Cell, Grid, read

ACTIONS = {
    "run": "train what is missing; what was cut goes on from its last checkpoint",
    "table": "print what is finished as Markdown",
    "plot": "draw the held-out loss of what is finished",
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="; ".join(map(": ".join, ACTIONS.items())))
    parser.add_argument("grid", type=Path, metavar="GRID.toml", help="rows, seeds and budget")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="(all)")
    parser.add_argument("--seeds", nargs="+", type=at_least(1), metavar="SEED", help="(all)")
    parser.add_argument(
        "--jobs", type=at_least(1), default=1, help="cells side by side (%(default)s)"
    )
    parser.add_argument(
        "--gpus", type=at_least(0), default=0, help="per cell; 0: the CPU (%(default)s)"
    )
    parser.add_argument("--baseline", metavar="ROW", help="table: differences from this row")
    parser.add_argument(
        "--at", type=at_least(1), metavar="UPDATE", help="the loss after so many updates"
    )
    parser.add_argument("--output", type=Path, default=Path("grid.png"), help="plot (%(default)s)")


def run(args: Namespace) -> int:
    """Do what the command line says; the status to exit with."""
    grid = read(args.grid)
    chosen = grid.only(args.rows, args.seeds)
    if args.action == "run":
        return cells.run_all([Job(grid, cell, args.gpus) for cell in chosen], args.jobs)
    found = finished(grid, chosen)
    if args.at is not None:
        found = table.at_update(found, args.at)
    if args.action == "table":
        print(table.markdown(found, args.baseline) if found else "nothing is finished yet")
    else:
        table.plot(found, args.output)
        print(f"wrote {args.output}")
    return 0


def finished(grid: Grid, chosen: Sequence[Cell]) -> table.Found:
    """What came out of these cells, row by row in the order of the grid."""
    found: table.Found = {row: {} for row in grid.rows}
    for cell in chosen:
        result = Job(grid, cell).result
        if result.exists():
            found[cell.row][cell.seed] = json.loads(result.read_text(encoding="utf-8"))
    return {row: seeds for row, seeds in found.items() if seeds}


@dataclass(frozen=True)
class Job(cells.Cell):
    """A cell of the grid, and how it is run."""

    grid: Grid
    cell: Cell
    gpus: int = 0

    @property
    def name(self) -> str:
        return self.cell.run

    @property
    def folder(self) -> Path:
        return self.grid.folder / "runs" / self.cell.run

    @property
    def result(self) -> Path:
        return self.grid.folder / "results" / f"{self.cell.run}.json"

    def steps(self) -> list[tuple[list[str], Path]]:
        """Commands of `diet-fairseq`, and their logs."""
        where = ["--run", self.cell.run, "--folder", self.grid.folder, "--gpus", self.gpus]
        given = [*self.cell.given, *split(self.grid.options), "--seed", self.cell.seed]
        if self.grid.kind == "pretraining":
            commands = [["encoder", "pretrain", *given, *where]]
        else:
            scheme, *given = given
            pair = self.grid.pair.split("-")
            commands = [
                ["translation", "train", scheme, *pair, *given, *where],
                ["translation", "evaluate", scheme, *pair, *split(self.grid.evaluate), *where],
            ]
        return [
            (["-m", "diet_fairseq", *map(str, command)], self.folder / f"{command[1]}.out")
            for command in commands
        ]

    def outcome(self) -> dict[str, Any]:
        found = OUTCOMES[self.grid.kind](self.folder)
        if not found:
            raise UserError(f"nothing was validated or scored, see {self.folder}")
        return {"row": self.cell.row, "seed": self.cell.seed, **found}

    def summary(self, outcome: dict[str, Any]) -> str:
        shown = {name: outcome[name] for name in table.MEASURES if name in outcome}
        return ", ".join(
            f"{name} {value:.{table.MEASURES[name]}f}" for name, value in shown.items()
        )


OUTCOMES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "pretraining": outcome.of_pretraining,
    "translation": outcome.of_translation,
}
