"""``report``: tables of finished cells, by the papers' statistics and beside their rows.

GLUE's is made here, XTREME's in report_xtreme.py.
"""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ...errors import UserError
from ..common import cells
from ..common.options import check_figure, check_folder, given
from . import report_xtreme
from .folder import add_folder
from .glue_tasks import Task
from .papers import VALUE, read_papers
from .prepare_task import load_task
from .report_names import key, paper_name
from .report_table import (
    GUESS,
    Found,
    Row,
    Score,
    Setting,
    Table,
    beside,
    best_setting,
    of_ours,
    plot,
    results,
    write_csv,
)
from .xtreme_tasks import Transfer

#: the numbers that the papers' averages are of: DIET's 7 (tables 2, 8, 9) and TUPE's 9 (1, 3, 4)
DIET_AVERAGE = ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B")
TUPE_AVERAGE = ("MNLI-m", "MNLI-mm", "QNLI", "QQP", "SST-2", "CoLA", "MRPC", "RTE", "STS-B")
AVERAGES = {"DIET's avg.": DIET_AVERAGE, "TUPE's avg.": TUPE_AVERAGE}
COLUMNS = (*DIET_AVERAGE, "MRPC", "RTE")

#: a cell's value, out of those that the metric had at its checkpoints
Statistic = Callable[[list[float]], float]
STATISTICS: dict[str, tuple[str, Statistic]] = {
    "diet": ("median over seeds of the maximum over checkpoints", max),
    "tupe": ("median over seeds of the last checkpoint", lambda values: values[-1]),
}
#: in paper_tables.json, table -> its name in the paper
PAPERS = {
    "diet_table2_glue": "DIET, table 2",
    "diet_table8_glue_segments": "DIET, table 8",
    "diet_table9_glue_sharing": "DIET, table 9",
    "tupe_table3_large": "TUPE, table 3",
    "tupe_base_glue_avg": "TUPE, tables 1 and 4",  # averages alone
    **report_xtreme.PAPERS,
}


@dataclass(frozen=True)
class Report:
    """What is shown, and where else it goes; None: all rows, all tasks, no papers, no file."""

    statistic: str
    rows: list[str] | None
    tasks: list[str] | None
    papers: Path | None
    tables: list[str]
    csv: Path | None
    plot: Path | None
    folder: Path


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--statistic", choices=(*STATISTICS, "both"), default="both", help="(%(default)s)"
    )
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="in this order (all)")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="(all)")
    parser.add_argument("--papers", type=Path, metavar="FILE", help="paper_tables.json")
    parser.add_argument(
        "--tables",
        nargs="+",
        choices=PAPERS,
        default=[
            "diet_table2_glue",
            "tupe_base_glue_avg",
            "tupe_table3_large",
            "diet_table3_xtreme",
        ],
        help="of --papers (those of whole models)",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw them in FILE")
    add_folder(parser)


def report(args: Namespace) -> None:
    show(given(Report, args))


def show(what: Report) -> None:
    """Print GLUE's table, XTREME's, or both, and write what else is asked for."""
    if what.plot:
        check_figure("--plot", what.plot)
    if what.csv:
        check_folder("--csv", what.csv)
    found = results(what.folder, what.rows, what.tasks)
    wanted = list(STATISTICS) if what.statistic == "both" else [what.statistic]
    papers = list(published(what.papers, what.tables)) if what.papers else []
    tables = []
    for name in wanted:
        if rows := list(own(found, what.folder, name)):
            others = (row for row in papers if row.source not in report_xtreme.PAPERS.values())
            tables.append(Table(name, title(name), beside([*rows, *others]), COLUMNS, AVERAGES))
    transfers = report_xtreme.transfers(found, what.folder)
    if transfers:
        others = (row for row in papers if row.source in report_xtreme.PAPERS.values())
        rows = list(report_xtreme.own(found, what.folder))
        tables.append(report_xtreme.table(beside([*rows, *others])))
    print("\n\n".join(f"{one.title}\n\n{one.markdown()}" for one in tables))
    if transfers:
        print(report_xtreme.more(tables[-1].rows, transfers))
    if what.csv:
        write_csv(what.csv, tables)
    if what.plot:
        plot(what.plot, tables[0])


def own(found: Found, folder: Path, statistic: str) -> Iterator[Row]:
    """Our rows, but for XTREME; the first is a constant guess. None if all is XTREME."""
    names = sorted({task for of_tasks in found.values() for task in of_tasks})
    tasks = {name: load_task(folder / "tasks" / name) for name in names}
    tasks = {name: task for name, task in tasks.items() if not isinstance(task, Transfer)}
    if not tasks:
        return
    guess = Row("ours", GUESS)
    for name, task in tasks.items():
        guessed = cells.load(folder / "tasks" / name / "encoded" / "guess.json")
        for split, metrics in guessed.items():
            guess.values[task.reported(split)] = metrics[task.metrics[0]]
    yield guess
    _, of_cell = STATISTICS[statistic]
    yield from of_ours(found, tasks, lambda task, some: scores(task, some, of_cell))


def scores(task: Task, some: list[dict[str, Any]], of_cell: Statistic) -> dict[str, Score]:
    """Of every dev set, at the best learning rate and epochs."""
    best, values = at_best(task, some, of_cell)
    found = {}
    for split, by_seed in values.items():
        several = by_seed.values()
        found[task.reported(split)] = Score(
            median(several), min(several), max(several), len(several), *best
        )
    return found


def at_best(
    task: Task, some: list[dict[str, Any]], of_cell: Statistic
) -> tuple[Setting, dict[str, dict[int, float]]]:
    """`best_setting` on the first dev set; of every dev set the value of every seed with it."""
    metric = task.metrics[0]

    def value(one: dict[str, Any], split: str) -> float:
        return of_cell([metrics[metric] for _, metrics in one["curves"][split]])

    first = next(iter(task.dev_files))
    best, ran = best_setting(some, lambda one: value(one, first))
    return best, {
        split: {one["seed"]: value(one, split) for one in ran} for split in task.dev_files
    }


def published(path: Path, tables: list[str]) -> Iterator[Row]:
    """The papers' rows."""
    printed = read_papers(path)
    for table in tables:
        if not printed.get(table):
            raise UserError(
                f"--papers {path} has no rows of {table}: name another file, or other --tables"
            )
        if table == "tupe_base_glue_avg":
            yield from averages_of_tupe(
                {row["model"]: row["scores"][VALUE] for row in printed[table]}
            )
            continue
        for row in printed[table]:
            model = row["model"] if "steps" in row else key(row)
            yield Row(PAPERS[table], paper_name(row), (model,), row["scores"])


def averages_of_tupe(rows: dict[str, float]) -> Iterator[Row]:
    """Of TUPE's base models, whose averages alone are known."""
    for name, average in rows.items():
        source = f"TUPE, table {4 if name.startswith('electra') else 1}"
        model = re.sub(r"_\d+k$", "", name)  # less the number of updates
        yield Row(source, name, (model,), {"TUPE's avg.": average})


def title(statistic: str) -> str:
    """What the table's numbers are."""
    return f"GLUE dev, {STATISTICS[statistic][0]}, at the best learning rate (least to most)"
