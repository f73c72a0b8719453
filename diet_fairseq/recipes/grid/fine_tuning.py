"""A grid of fine-tunings: the cells of ``encoder finetune``, and the measure of each dev set."""

from collections import defaultdict
from shlex import split
from typing import Any

from ..common import cells
from ..common.options import Strict, given
from ..encoders import finetune, report, report_xtreme
from ..encoders.tuning import Tuning
from ..encoders.xtreme_tasks import Transfer
from . import table
from .spec import Cell, Grid


def tunings(grid: Grid, chosen: list[Cell]) -> dict[str, list[Tuning]]:
    """Row by row: one for every task, learning rate, number of epochs and seed."""
    found: dict[str, list[Tuning]] = defaultdict(list)
    for cell in chosen:
        parser = Strict(f"row {cell.row!r}")
        finetune.add_arguments(parser)
        checkpoint, *own = cell.given
        words = [grid.tasks, checkpoint, *split(grid.options), *own, "--row", cell.row]
        words += ["--seeds", str(cell.seed), "--folder", str(grid.folder)]
        args, more = parser.parse_known_args(words)
        found[cell.row] += finetune.grid_of(given(finetune.FineTuning, args), more)
    return found


def finished(grid: Grid, chosen: list[Cell]) -> table.Found:
    """Every dev set's metric at the best checkpoint, seed by seed.

    Learning rate and epochs are those whose median is best on the first dev set, as in `report`; of
    XTREME's tasks the measures are means over languages.
    """
    found: table.Found = {}
    for row, some in tunings(grid, chosen).items():
        of_tasks: dict[str, list[Tuning]] = defaultdict(list)
        for one in some:
            if one.result.exists():
                of_tasks[one.row.task.name].append(one)
        seeds: dict[int, dict[str, Any]] = {}
        for ran in of_tasks.values():
            task, results = ran[0].row.task, [cells.load(one.result) for one in ran]
            if isinstance(task, Transfer):
                best, values = report_xtreme.means(task, results)
            else:
                best, of_splits = report.at_best(task, results, max)
                values = {task.reported(split): some for split, some in of_splits.items()}
            for result in results:
                if (result["rate"], result["epochs"]) == best:
                    of_seed = seeds.setdefault(result["seed"], {"seconds": 0})
                    of_seed["parameters"] = result["parameters"]
                    of_seed["seconds"] += result["seconds"]
            for name, by_seed in values.items():
                for seed, value in by_seed.items():
                    seeds[seed][name] = value
        if seeds:
            found[row] = dict(sorted(seeds.items()))
    return found
