"""``ablate NAME``: the rows of DIET's tables 8 and 9, pretrained and fine-tuned in one go."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common import cells, programs
from ..common.cells import nameable
from ..common.options import at_least, given
from . import finetune, report
from .folder import add_folder
from .presets import PRESETS
from .pretrain import SIZES


def row(model: str, segment: str, sharing: str | None = None, rank: int | None = None) -> dict:
    """As in paper_tables.json, where no sharing is said by null."""
    return {"model": model, "segment": segment, "sharing": sharing, "rank": rank}


#: name -> rows of DIET's tables, and then some that they leave out
ABLATIONS = {
    "segments": [  # table 8; it has no row without segments
        row("bert", "input"),
        *(row("diet_rel", segment) for segment in ("none", "input", "per-head")),
        *(row("diet_abs", segment, rank=64) for segment in ("none", "input", "per-head")),
        row("diet_abs", "per-head", "layer", 64),
        row("diet_abs", "per-head", "layer", 128),
    ],
    "sharing": [  # table 9; it has DIET-ABS without "head"
        row("diet_rel", "per-head"),
        row("diet_rel", "per-head", "layer"),
        row("diet_rel", "per-head", "head"),
        row("diet_abs", "per-head", None, 64),
        row("diet_abs", "per-head", "head", 64),
        row("diet_abs", "per-head", "layer", 64),
    ],
    "rank": [  # tables 8 and 9 have 64 and 128, table 5 all of them, for XTREME
        row("diet_abs", "per-head", sharing, rank)
        for sharing in (None, "layer")
        for rank in (64, 128, 256, 512)
    ],
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", choices=ABLATIONS, help="what is varied")
    parser.add_argument("task", metavar="TASK", help="prepared tasks, separated by commas, or all")
    parser.add_argument("--preset", choices=PRESETS, default="machine", help="(%(default)s)")
    parser.add_argument("--size", choices=SIZES, help="(the preset's)")
    parser.add_argument("--updates", type=at_least(1), help="of pretraining (the preset's)")
    parser.add_argument("--papers", type=Path, metavar="FILE", help="paper_tables.json")
    finetune.add_grid_arguments(parser)
    add_folder(parser)


def ablate(args: Namespace, more: list[str]) -> int:
    """Pretrain every row (``more`` goes there), fine-tune every one, print the table."""
    gpus = programs.devices(args.gpus)
    budget = given(Budget, args)
    rows = [Pretraining(row, budget, tuple(more)) for row in ABLATIONS[args.name]]
    # One after the other: each takes all GPUs.
    if cells.run_all(rows, 1 if gpus else args.jobs or 1):
        return 1
    grid = []
    for one in rows:
        start = {"checkpoint": one.checkpoint, "row": one.name, "encoder": None, "scratch": False}
        grid += finetune.grid_of(given(finetune.FineTuning, args, **start), ())
    status = finetune.run(grid, gpus, args.jobs)
    tables = ["diet_table8_glue_segments", "diet_table9_glue_sharing"]
    shown = {"rows": [one.name for one in rows], "tasks": None, "statistic": "diet"}
    report.show(given(report.Report, args, **shown, tables=tables, csv=None, plot=None))
    return status


@dataclass(frozen=True)
class Budget:
    """What all rows have in common; None: as the preset has it, on all GPUs."""

    preset: str
    size: str | None
    updates: int | None
    gpus: int | None
    folder: Path


@dataclass(frozen=True)
class Pretraining(cells.Cell):
    """One row's encoder."""

    row: dict[str, Any]
    budget: Budget
    more: tuple[str, ...]

    @property
    def name(self) -> str:
        return report.paper_name(self.row)

    @property
    def run_name(self) -> str:
        """Of the folder in ``runs``."""
        budget = self.budget
        parts = [self.name.replace(", ", "-").replace(" ", "-"), budget.preset]
        parts += map(str, filter(None, (budget.size, budget.updates)))
        return "_".join([*parts, *nameable(self.more)])

    @property
    def folder(self) -> Path:
        return self.budget.folder / "runs" / self.run_name

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint_last.pt"

    @property
    def result(self) -> Path:
        return self.folder / "pretrained"

    def steps(self) -> list[tuple[list[str], Path]]:
        row, budget = self.row, self.budget
        scheme = {"bert": "learned"}.get(row["model"], row["model"])
        words: list[Any] = ["-m", "diet_fairseq", "encoder", "pretrain", scheme]
        words += ["--encoder", "bert", "--run", self.run_name]
        for option in ("preset", "size", "updates", "gpus", "folder"):
            if getattr(budget, option) is not None:
                words += [f"--{option}", getattr(budget, option)]
        words += ["--segment-scheme", row["segment"]]
        if scheme != "learned":
            words += ["--position-sharing", row["sharing"] or "none"]
        if row["rank"]:
            words += ["--position-rank", row["rank"]]
        return [([str(word) for word in (*words, *self.more)], self.folder / "pretrain.out")]

    def outcome(self) -> dict[str, Any]:
        return {"row": self.name, **self.row}

    def summary(self, outcome: dict[str, Any]) -> str:
        return "pretrained"
