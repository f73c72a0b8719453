"""A cell of a grid that is a run of its own: its commands, and what comes out of them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import split
from typing import Any

from ...config import flag
from ...errors import UserError
from ..common import cells, settings
from ..common.options import by_name
from ..common.stages import difference
from ..common.turns import turn
from . import outcome, table
from .spec import Cell, Grid

#: options that change where and how a cell is run, and how often it is looked at
NOT_COUNTING = {
    *map(flag, settings.FREE),
    *("--folder", "--gpus", "--out", "--log-interval", "--save-interval-updates"),
} - {"--max-update", "--max-epoch"}


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
        own, common = list(self.cell.given), split(self.grid.options)
        seed = ["--seed", self.cell.seed]
        if self.grid.kind == "script":
            command = [self.grid.script, *common, *own, *seed, "--out", self.folder]
            return [(list(map(str, command)), self.folder / "script.out")]
        scheme, *own = own
        given = [*common, *own, *seed]  # a row's own options win
        if self.grid.kind == "pretraining":
            commands = [["encoder", "pretrain", scheme, *given, *where]]
        else:
            pair = self.grid.pair.split("-")
            commands = [
                ["translation", "train", scheme, *pair, *given, *where],
                ["translation", "evaluate", scheme, *pair, *split(self.grid.evaluate), *where],
            ]
        return [
            (["-m", "diet_fairseq", *map(str, command)], self.folder / f"{command[1]}.out")
            for command in commands
        ]

    def run(self) -> str:
        with turn(self.grid.folder, self.cell.run, lambda: print(f"{self.name}: waits")):
            return super().run()

    def check_result(self) -> None:
        """The result has the name of this cell: was it made by the same commands?"""
        wanted = [by_name(command) for command, _ in self.steps()]
        # older results have the first command only
        for was, now in zip(cells.commands_of(cells.load(self.result)), wanted, strict=False):
            if other := difference(counting(was), counting(now)):
                raise UserError(
                    f"{self.result} was made with other options: {other}: remove it and "
                    f"{self.folder} to run the cell again, or give the row or the grid another name"
                )

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


def counting(options: dict[str, str]) -> dict[str, str]:
    """Those of the options that change what comes out."""
    return {name: value for name, value in options.items() if name not in NOT_COUNTING}


OUTCOMES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "pretraining": outcome.of_pretraining,
    "translation": outcome.of_translation,
    "script": outcome.of_script,
}


def finished(grid: Grid, chosen: list[Cell]) -> table.Found:
    """What came out of these cells, row by row in the order of the grid."""
    found: table.Found = {row: {} for row in grid.rows}
    for cell in chosen:
        one = Job(grid, cell)
        if one.result.exists():
            one.check_result()
            found[cell.row][cell.seed] = cells.load(one.result, row=str, seed=int)
    return {row: seeds for row, seeds in found.items() if seeds}
