"""``finetune TASK CHECKPOINT``: a grid of learning rates, epochs and seeds, cell by cell."""

import shlex
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from ...errors import UserError
from ..common import cells, programs
from ..common.options import at_least, by_name, folder_name, given
from ..common.stages import MADE_FROM
from .folder import add_folder
from .prepare_task import load_task, preparing
from .presets import GRIDS, LARGE
from .start import Start
from .tuning import FineTuning, Row, Tuning

#: options of fairseq-train that differ from cell to cell, and those that give them here
OF_CELLS = {"--lr": "--rates", "--max-epoch": "--epochs", "--seed": "--seeds"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="prepared tasks, separated by commas, or all")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="to start from")
    parser.add_argument(
        "--encoder", choices=("bert", "roberta"), help="bert adds segments (the checkpoint's)"
    )
    parser.add_argument(
        "--scratch", action="store_true", help="train the checkpoint's model from scratch"
    )
    parser.add_argument(
        "--row", type=folder_name, help="name of the row in the report (the checkpoint's run)"
    )
    add_grid_arguments(parser)
    parser.add_argument("--show", action="store_true", help="show the cells' commands only")
    add_folder(parser)


def add_grid_arguments(parser: ArgumentParser) -> None:
    """The options that `ablate` has, too."""
    parser.add_argument("--grid", choices=GRIDS, default="machine", help="(%(default)s)")
    parser.add_argument("--rates", type=at_least(0.0), nargs="+", metavar="LR", help="(the grid's)")
    parser.add_argument("--epochs", type=at_least(1), nargs="+", metavar="N", help="(the grid's)")
    parser.add_argument("--seeds", type=at_least(0), nargs="+", metavar="N", help="(the grid's)")
    parser.add_argument("--batch", type=at_least(1), help="samples in an update (the grid's)")
    parser.add_argument("--length", type=at_least(1), help="tokens of a sample (the grid's)")
    parser.add_argument("--gpus", type=at_least(0), help="to spread cells over; 0: the CPU (all)")
    parser.add_argument("--jobs", type=at_least(1), help="cells side by side (one a GPU)")
    parser.add_argument(
        "--keep",
        choices=("best", "none"),
        default="best",
        help="of a finished cell's checkpoints (%(default)s)",
    )


def finetune(args: Namespace, more: list[str]) -> int:
    grid, gpus = grid_of(given(FineTuning, args), more), programs.devices(args.gpus)
    if args.show:
        for cell in (replace(cell, on_gpu=gpus > 0) for cell in grid):
            for command, _ in cell.steps():
                print(command[1].replace("_cli.", "-"), shlex.join(command[2:]))
        return 0
    return run(grid, gpus, args.jobs)


def run(grid: list[Tuning], gpus: int, jobs: int | None) -> int:
    """Run the cells, ``jobs`` side by side; returns the status to exit with."""
    for row in {cell.row.folder: cell.row for cell in grid}.values():
        row.begin()
    jobs = jobs or max(1, gpus)
    devices: SimpleQueue[str] = SimpleQueue()
    for number in range(jobs):
        devices.put(str(number % gpus) if gpus else "")
    waiting = Counter(cell.training for cell in grid)
    all_cells = [replace(cell, on_gpu=gpus > 0, devices=devices, waiting=waiting) for cell in grid]
    return cells.run_all(all_cells, jobs)


def grid_of(wanted: FineTuning, more: Sequence[str]) -> list[Tuning]:
    """All cells that are asked for, seed by seed."""
    for name, value in by_name(more).items():
        if name in OF_CELLS:
            raise UserError(
                f"{name} {value}: every cell of a grid of fine-tunings has its own: give "
                f"{OF_CELLS[name]} instead"
            )
    start = Start(wanted.checkpoint)
    grid: list[Tuning] = []
    for name in task_names(wanted.folder, wanted.task):
        folder = wanted.folder / "tasks" / name
        task = load_task(folder)
        start.check_dictionary(folder / "data-bin" / task.dictionary)
        row = Row(task, folder, start, wanted, tuple(more))
        preset = GRIDS[wanted.grid]
        epochs = preset.epochs_of_large if task.name in LARGE else preset.epochs
        grid += [
            Tuning(row, rate, epoch, seed)
            for seed in wanted.seeds or preset.seeds
            for epoch in wanted.epochs or epochs
            for rate in wanted.rates or preset.rates
        ]
    return grid


def task_names(folder: Path, task: str) -> list[str]:
    """The tasks named, in capitals or not, or all that are prepared."""
    prepared = folder.glob(f"tasks/*/data-bin/{MADE_FROM}")
    found = sorted(path.parents[1].name for path in prepared)
    if task != "all":
        as_prepared = {name.lower(): name for name in found}
        return [as_prepared.get(name.lower(), name) for name in task.split(",")]
    if not found:
        raise UserError(f"{folder}/tasks holds no prepared task: run {preparing(task)} first")
    return found
