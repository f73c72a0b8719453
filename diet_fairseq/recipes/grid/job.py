"""A cell of a grid that is a run of its own: its commands, and what comes out of them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import split
from typing import Any

from ...errors import UserError
from ..common import cells
from . import outcome, table
from .spec import Cell, Grid


@dataclass(frozen=True)
class Job(cells.Cell):
    """One row and seed of a grid of any kind but fine-tuning."""

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
        """Commands of `diet-fairseq`, or the script, and their logs."""
        where: list[Any] = ["--run", self.cell.run, "--folder", self.grid.folder]
        where += ["--gpus", self.gpus]
        given = [*self.cell.given, *split(self.grid.options), "--seed", self.cell.seed]
        if self.grid.kind == "script":
            command = [self.grid.script, *given, "--out", self.folder]
            return [(list(map(str, command)), self.folder / "script.out")]
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
        return ", ".join(
            f"{name} {outcome[name]:.{digits}f}"
            for name, digits in table.measures([outcome], self.grid.measures).items()
        )


OUTCOMES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "pretraining": outcome.of_pretraining,
    "translation": outcome.of_translation,
    "script": outcome.of_script,
}


def finished(grid: Grid, chosen: list[Cell]) -> table.Found:
    """What came out of these cells, row by row in the order of the grid."""
    found: table.Found = {row: {} for row in grid.rows}
    for cell in chosen:
        result = Job(grid, cell).result
        if result.exists():
            found[cell.row][cell.seed] = cells.load(result)
    return {row: seeds for row, seeds in found.items() if seeds}
