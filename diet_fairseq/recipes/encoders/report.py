"""``report``: GLUE's table of finished cells, by the papers' statistics and beside their rows."""

import csv
import json
import re
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from ...atomic import written
from ...errors import UserError
from ..common import cells
from ..common.options import given
from .folder import add_folder
from .glue_tasks import Task
from .prepare_task import load_task
from .tuning import RESULT

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
GUESS = "the commonest label"
#: in paper_tables.json, table -> its name in the paper
PAPERS = {
    "diet_table2_glue": "DIET, table 2",
    "diet_table8_glue_segments": "DIET, table 8",
    "diet_table9_glue_sharing": "DIET, table 9",
    "tupe_table3_large": "TUPE, table 3",
    "tupe_base_glue_avg": "TUPE, tables 1 and 4",  # averages alone
}


@dataclass(frozen=True)
class Score:
    """A row's value in a column: the median over seeds, and the range of the seeds."""

    value: float
    lowest: float
    highest: float
    seeds: int
    rate: float
    epochs: int

    def __str__(self) -> str:
        spread = f" ({self.lowest:.1f} to {self.highest:.1f})" if self.seeds > 1 else ""
        return f"{self.value:.1f}{spread}"


@dataclass
class Row:
    """A line of the table: numbers by column, and the scores behind them if it is ours."""

    source: str
    name: str
    #: what the papers call the model: ours has a name in each of them
    models: tuple[str, ...] = ()
    values: dict[str, float] = field(default_factory=dict)
    scores: dict[str, Score] = field(default_factory=dict)

    def average(self, columns: Iterable[str]) -> float | None:
        """Plain mean of the columns; None where one is missing."""
        found = [self.values.get(column) for column in columns]
        return mean(found) if found and None not in found else None  # type: ignore[type-var]


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
        default=["diet_table2_glue", "tupe_base_glue_avg", "tupe_table3_large"],
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw them in FILE")
    add_folder(parser)


def report(args: Namespace) -> None:
    show(given(Report, args))


def show(what: Report) -> None:
    """Print the table, and write what else is asked for."""
    found = results(what.folder, what.rows, what.tasks)
    wanted = list(STATISTICS) if what.statistic == "both" else [what.statistic]
    papers = list(published(what.papers, what.tables)) if what.papers else []
    tables = {name: beside([*own(found, what.folder, name), *papers]) for name in wanted}
    print("\n\n".join(f"{title(name)}\n\n{markdown(rows)}" for name, rows in tables.items()))
    if what.csv:
        write_csv(what.csv, tables)
    if what.plot:
        plot(what.plot, tables[wanted[0]], STATISTICS[wanted[0]][0])


Found = dict[str, dict[str, list[dict[str, Any]]]]


def results(folder: Path, rows: list[str] | None, tasks: list[str] | None) -> Found:
    """Finished cells by row and task."""
    found: Found = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob(f"tasks/*/runs/*/*/{RESULT}")):
        one = cells.load(path)
        if (rows is None or one["row"] in rows) and (tasks is None or one["task"] in tasks):
            found[one["row"]][one["task"]].append(one)
    if not found:
        raise UserError(f"{folder}/tasks holds no finished cell: run `finetune` first")
    return {row: found[row] for row in rows or found if row in found}


def own(found: Found, folder: Path, statistic: str) -> Iterator[Row]:
    """Our rows; the first is a constant guess."""
    names = sorted({task for of_tasks in found.values() for task in of_tasks})
    tasks = {name: load_task(folder / "tasks" / name) for name in names}
    guess = Row("ours", GUESS)
    for name, task in tasks.items():
        guessed = cells.load(folder / "tasks" / name / "encoded" / "guess.json")
        for split, metrics in guessed.items():
            guess.values[task.reported(split)] = metrics[task.metrics[0]]
    yield guess
    for name, of_tasks in found.items():
        [some, *_] = of_tasks.values()
        row = Row("ours", name, names_in_papers(some[0]["model"]))
        for task_name, some in of_tasks.items():
            row.scores |= scores(tasks[task_name], some, STATISTICS[statistic][1])
        row.values = {column: score.value for column, score in row.scores.items()}
        yield row


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
) -> tuple[tuple[float, int], dict[str, dict[int, float]]]:
    """Learning rate and epochs, and with these, of every dev set, the value of every seed.

    They are those whose median is best on the first dev set. Where some were not run with all seeds
    yet, only those with the most seeds are compared.
    """
    settings = defaultdict(list)
    for one in some:
        settings[one["rate"], one["epochs"]].append(one)
    most = max(map(len, settings.values()))
    metric = task.metrics[0]

    def values(setting: tuple[float, int], split: str) -> dict[int, float]:
        return {
            one["seed"]: of_cell([metrics[metric] for _, metrics in one["curves"][split]])
            for one in settings[setting]
        }

    first = next(iter(task.dev_files))
    best = max(
        (setting for setting, ran in settings.items() if len(ran) == most),
        key=lambda setting: median(values(setting, first).values()),
    )
    return best, {split: values(best, split) for split in task.dev_files}


def published(path: Path, tables: list[str]) -> Iterator[Row]:
    """The papers' rows."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        for table in tables:
            rows = content[table]["rows"]
            if table == "tupe_base_glue_avg":
                yield from averages_of_tupe(rows)
                continue
            for row in rows:
                model = row["model"] if "steps" in row else paper_name(row)
                yield Row(PAPERS[table], paper_name(row), (model,), row["scores"])
    except OSError as error:
        raise UserError(f"--papers {path} can't be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"--papers {path} is not a paper_tables.json: {error!r} is wrong"
        ) from error


def averages_of_tupe(rows: dict[str, float]) -> Iterator[Row]:
    """Of TUPE's base models, whose averages alone are known."""
    for name, average in rows.items():
        source = f"TUPE, table {4 if name.startswith('electra') else 1}"
        model = re.sub(r"_\d+k$", "", name)  # less the number of updates
        yield Row(source, name, (model,), {"TUPE's avg.": average})


def names_in_papers(model: dict[str, Any]) -> tuple[str, ...]:
    """What DIET's tables and TUPE's call the model of a checkpoint, where they have it."""
    tupe = name_in_tupe(model)
    if str(model.get("arch")).startswith("electra_"):
        return tupe
    return (paper_name(as_in_papers(model)), *tupe)


def name_in_tupe(model: dict[str, Any]) -> tuple[str, ...]:
    """As in TUPE's tables 1, 3 and 4; () where they don't have it.

    Models that are smaller than base count as base.
    """
    scheme, added = model["position_scheme"], model.get("position_input") or "none"
    arch = str(model.get("arch"))
    kind = "electra" if arch.startswith("electra_") else ""
    kind = kind or ("large" if arch.endswith("_large") else "base")
    if scheme == "tupe_a" and model.get("position_untie_cls") == "no":
        scheme = "tupe_a, [CLS] tied"
    usual = "learned" if scheme == "learned" else "none"
    found = NAMES_IN_TUPE[kind].get(f"{scheme} + {added}" if added != usual else scheme)
    return (found,) if found else ()


#: kind of model -> scheme, with what is added to the input -> name
NAMES_IN_TUPE = {
    "base": {
        "learned": "bert_a",
        "t5 + learned": "bert_r",
        "bert_ad": "bert_a_d",
        "tupe_a": "tupe_a",
        "tupe_r": "tupe_r",
        "tupe_a, [CLS] tied": "tupe_a_tied_cls",
    },
    "large": {"learned": "bert_large", "tupe_r": "tupe_r_large"},
    "electra": {"learned": "electra_base", "tupe_r": "electra_tupe"},
}


def as_in_papers(model: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's model in the words of DIET's tables in paper_tables.json."""
    scheme, sharing = model["position_scheme"], model["position_sharing"]
    usual = {"diet_rel": "none", "diet_abs": "none"}.get(scheme, sharing)  # not printed there
    return {
        "model": {"learned": "bert"}.get(scheme, scheme or "stock"),
        "rank": model["position_rank"],
        "sharing": None if sharing == usual else sharing,
        "segment": model["segment_scheme"],
    }


def beside(rows: list[Row]) -> list[Row]:
    """Papers' rows right after ours of the same model, the others at the end."""
    ours, papers = ([row for row in rows if (row.source == "ours") is own] for own in (True, False))
    order = {id(row): len(ours) for row in papers}
    for place, row in enumerate(ours):
        order[id(row)] = place
        same = (paper for paper in papers if set(paper.models) & set(row.models))
        order |= dict.fromkeys(map(id, same), place)
    return sorted(rows, key=lambda row: order[id(row)])


def paper_name(row: dict[str, Any]) -> str:
    """The name of a table's row: what distinguishes it from the others."""
    parts = [row["model"]]
    parts += [f"{name} {row[name]}" for name in ("rank", "projection") if row.get(name)]
    parts += [f"shared {row['sharing']}"] if row.get("sharing") else []
    parts += [f"segments {row['segment']}"] if row.get("segment") else []
    parts += [f"{row['steps']} updates"] if row.get("steps") else []
    return ", ".join(parts)


def shown_columns(rows: list[Row]) -> list[str]:
    """The columns of our rows, GLUE's first, then those of other tasks."""
    ours = {column for row in rows if row.source == "ours" for column in row.values}
    return [*(c for c in COLUMNS if c in ours), *sorted(ours - set(COLUMNS))]


def title(statistic: str) -> str:
    """What the table's numbers are."""
    return f"GLUE dev, {STATISTICS[statistic][0]}, at the best learning rate (least to most)"


def markdown(rows: list[Row]) -> str:
    """The table; averages where a row has all that a paper's average is of."""
    columns = shown_columns(rows)
    averages = {
        name: of
        for name, of in AVERAGES.items()
        if any(name in row.values or row.average(of) for row in rows)
    }
    heads = ["source", "row", *columns, f"mean of these {len(columns)}", *averages]
    lines = [" | ".join(heads), " | ".join(["---"] * len(heads))]
    for row in rows:
        texts = [str(row.scores.get(column, number(row.values.get(column)))) for column in columns]
        texts.append(number(row.average(columns)))
        texts += [number(row.values.get(name, row.average(of))) for name, of in averages.items()]
        lines.append(" | ".join([row.source, row.name, *texts]))
    return "\n".join(f"| {line} |" for line in lines)


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def write_csv(path: Path, tables: dict[str, list[Row]]) -> None:
    """A line for every number."""
    with written(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        heads = ("lowest", "highest", "seeds", "rate", "epochs")
        writer.writerow(["statistic", "source", "row", "task", "value", *heads])
        for statistic, rows in tables.items():
            for row in rows:
                averages = {name: row.average(of) for name, of in AVERAGES.items()}
                for column, value in (averages | row.values).items():
                    if value is not None:
                        score = row.scores.get(column)
                        more = [getattr(score, head) for head in heads] if score else [""] * 5
                        writer.writerow([statistic, row.source, row.name, column, value, *more])


def plot(path: Path, rows: list[Row], statistic: str) -> None:
    """A panel for every column: ours with their spread, the papers' as lighter marks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = shown_columns(rows)
    shown = [row for row in rows if any(column in row.values for column in columns)][::-1]
    size = (2.5 + 1.8 * len(columns), 1.5 + 0.25 * len(shown))
    figure, panels = pyplot.subplots(
        1, len(columns), sharey=True, squeeze=False, figsize=size, layout="constrained"
    )
    for axes, column in zip(panels[0], columns, strict=True):
        for place, row in enumerate(shown):
            score, value = row.scores.get(column), row.values.get(column)
            if score:
                axes.plot([score.lowest, score.highest], [place, place], color="C0", alpha=0.4)
            if value is not None:
                ours = row.source == "ours"
                axes.plot(value, place, "o" if ours else "d", color="C0" if ours else "C1")
        axes.set(title=column, yticks=range(len(shown)))
        axes.set_yticklabels([f"{row.name} ({row.source})" for row in shown], fontsize=7)
        axes.grid(axis="x", alpha=0.3)
    figure.suptitle(statistic, fontsize=9)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
