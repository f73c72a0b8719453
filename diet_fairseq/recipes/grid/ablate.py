"""``encoder ablate NAME``: one of the papers' tables, pretrained row by row and fine-tuned."""

import shlex
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from ...errors import UserError
from ..common import cells, programs
from ..common.cells import nameable
from ..common.options import at_least, given
from ..encoders import finetune, report
from ..encoders.folder import add_folder
from ..encoders.prepare_task import load_task
from ..encoders.presets import PRESETS
from ..encoders.pretrain import SIZES
from ..encoders.tuning import is_begun
from .job import Job
from .spec import Grid, read

FOLDER = Path(__file__).with_name("ablations")
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
#: paper, or ablation -> the tables that are shown beside ours
TABLES = {
    "diet": ["diet_table8_glue_segments", "diet_table9_glue_sharing"],
    "xtreme": ["diet_table5_xtreme_ablation"],
    "tupe": ["tupe_base_glue_avg", "tupe_table3_large"],
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", choices=NAMES, help="what is varied")
    parser.add_argument("task", metavar="TASK", help="prepared tasks, separated by commas, or all")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="(all)")
    parser.add_argument("--preset", choices=PRESETS, default="machine", help="(%(default)s)")
    parser.add_argument("--size", choices=SIZES, help="(the preset's)")
    parser.add_argument("--updates", type=at_least(1), help="of pretraining (the preset's)")
    parser.add_argument("--papers", type=Path, metavar="FILE", help="paper_tables.json")
    finetune.add_grid_arguments(parser)
    add_folder(parser)


def ablate(args: Namespace, more: list[str]) -> int:
    """Pretrain every row (``more`` goes there), fine-tune every one, print the table."""
    if "--show" in more:
        raise UserError(
            "--show: ablate can't only show what it would run: leave it out, and see its rows in "
            f"{FOLDER / args.name}.toml"
        )
    paper = "tupe" if args.name.startswith("tupe") else "diet"
    tables = TABLES.get(args.name, TABLES[paper])
    if args.papers:
        list(report.published(args.papers, tables))  # a mistake is said before days of training
    gpus = programs.devices(args.gpus)
    grid = pretraining(args, more)
    jobs = {cell.row: Job(grid, cell, gpus) for cell in grid.only(args.rows, None)}
    refuse_others(jobs, args)
    # On GPUs one after the other: each takes all of them.
    if cells.run_all(list(jobs.values()), 1 if gpus else args.jobs or 1):
        return 1
    tuned = []
    for row, job in jobs.items():
        start = {"checkpoint": job.folder / "checkpoint_last.pt", "row": row}
        start |= {"encoder": None, "scratch": False}
        tuned += finetune.grid_of(given(finetune.FineTuning, args, **start), ())
    status = finetune.run(tuned, gpus, args.jobs)
    finished = {cell.row.name: None for cell in tuned if cell.result.exists()}
    if not finished:  # each has said why
        return status
    shown = {"rows": list(finished), "tasks": None, "statistic": paper}
    report.show(given(report.Report, args, **shown, tables=tables, csv=None, plot=None))
    return status


def refuse_others(jobs: dict[str, Job], args: Namespace) -> None:
    """Refuse tasks that aren't prepared, and encoders whose rows were fine-tuned from others here.

    `finetune` would refuse them, too, but days later.
    """
    for task in finetune.task_names(args.folder, args.task):
        load_task(args.folder / "tasks" / task)
        for row, job in jobs.items():
            begun = args.folder / "tasks" / task / "runs" / row
            if is_begun(begun) and not job.result.exists():
                raise UserError(
                    f"{begun} was fine-tuned from another encoder than {job.folder}, which is not "
                    "trained yet: take another --folder, or remove the former"
                )


def pretraining(args: Namespace, more: list[str]) -> Grid:
    """The ablation's grid with this budget, which is part of its name: another makes other runs."""
    grid = read(FOLDER / f"{args.name}.toml")
    budget = {name: getattr(args, name) for name in ("preset", "size", "updates")}
    chosen = {name: str(value) for name, value in budget.items() if value is not None}
    options = [word for name, value in chosen.items() for word in (f"--{name}", value)]
    return replace(
        grid,
        name="_".join(["ablation", *chosen.values(), *nameable(more)]),
        folder=args.folder,
        options=shlex.join([*shlex.split(grid.options), *options, *more]),
    )
