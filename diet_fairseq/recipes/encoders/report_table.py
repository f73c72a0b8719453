"""A table of fine-tuned models: its rows, ours and the papers', and the forms it is shown in."""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeVar

from ...atomic import written
from ...errors import UserError
from ..common import cells
from .glue_tasks import Task
from .report_names import names_in_papers
from .tuning import RESULT

GUESS = "the commonest label"
#: what a finished cell says, with the types of it
NEEDED = {"row": str, "task": str, "seed": int, "rate": float, "epochs": int, "curves": dict}
#: learning rate and epochs
Setting = tuple[float, int]


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


AnyTask = TypeVar("AnyTask", bound=Task)
#: row -> task -> its finished cells
Found = dict[str, dict[str, list[dict[str, Any]]]]


def results(folder: Path, rows: list[str] | None, tasks: list[str] | None) -> Found:
    """Finished cells by row and task, of all or of these; each of these must have some."""
    paths = sorted(folder.glob(f"tasks/*/runs/*/*/{RESULT}"))
    every = [cells.load(path, **NEEDED) for path in paths]
    if not every:
        raise UserError(f"{folder}/tasks holds no finished cell: run `finetune` first")
    for option, wanted in (("task", tasks), ("row", rows)):
        there = {one[option]: None for one in every}
        for name in wanted or ():
            if name not in there:
                raise UserError(
                    f"--{option}s {name}: {folder}/tasks has finished cells of "
                    f"{', '.join(map(repr, there))}: take some of these, or run `finetune` first"
                )
        every = [one for one in every if wanted is None or one[option] in wanted]
    found: Found = defaultdict(lambda: defaultdict(list))
    for one in every:
        found[one["row"]][one["task"]].append(one)
    return {row: found[row] for row in rows or found}


def of_ours(
    found: Found,
    tasks: Mapping[str, AnyTask],
    scores: Callable[[AnyTask, list[dict[str, Any]]], dict[str, Score]],
) -> Iterator[Row]:
    """Our rows that were fine-tuned on some of these tasks, whose cells ``scores`` sums up."""
    for name, of_tasks in found.items():
        ours = {task: some for task, some in of_tasks.items() if task in tasks}
        if not ours:
            continue
        [some, *_] = ours.values()
        row = Row("ours", name, names_in_papers(some[0]["model"]))
        for task, some in ours.items():
            row.scores |= scores(tasks[task], some)
        row.values = {column: score.value for column, score in row.scores.items()}
        yield row


def beside(rows: list[Row]) -> list[Row]:
    """Papers' rows right after ours of the same model, the others at the end."""
    ours, papers = ([row for row in rows if (row.source == "ours") is own] for own in (True, False))
    order = {id(row): len(ours) for row in papers}
    for place, row in enumerate(ours):
        order[id(row)] = place
        same = (paper for paper in papers if set(paper.models) & set(row.models))
        order |= dict.fromkeys(map(id, same), place)
    return sorted(rows, key=lambda row: order[id(row)])


@dataclass(frozen=True)
class Table:
    """Rows, and how they are shown.

    Attributes:
        statistic: what its numbers are, in a word and in a sentence
        columns: in this order, where ours have them
        averages: name -> the columns that it is the plain mean of
        more: other columns are shown after these
    """

    statistic: str
    title: str
    rows: list[Row]
    columns: tuple[str, ...]
    averages: Mapping[str, tuple[str, ...]]
    more: bool = True

    def shown(self) -> list[str]:
        """The columns of our rows."""
        ours = {column for row in self.rows if row.source == "ours" for column in row.values}
        others = sorted(ours - set(self.columns)) if self.more else []
        return [*(one for one in self.columns if one in ours), *others]

    def markdown(self) -> str:
        """Averages where a row has all that a paper's average is of."""
        columns = self.shown()
        averages = {
            name: of
            for name, of in self.averages.items()
            if any(name in row.values or row.average(of) for row in self.rows)
        }
        heads = ["source", "row", *columns, f"mean of these {len(columns)}", *averages]
        lines = [" | ".join(heads), " | ".join(["---"] * len(heads))]
        for row in self.rows:
            texts = [
                str(row.scores.get(column, number(row.values.get(column)))) for column in columns
            ]
            texts.append(number(row.average(columns)))
            texts += [
                number(row.values.get(name, row.average(of))) for name, of in averages.items()
            ]
            lines.append(" | ".join([row.source, row.name, *texts]))
        return "\n".join(f"| {line} |" for line in lines)


def best_setting(
    some: list[dict[str, Any]], value: Callable[[dict[str, Any]], float]
) -> tuple[Setting, list[dict[str, Any]]]:
    """The setting whose median over seeds is best, and the results with it.

    Where some were not run with all seeds yet, only those with the most seeds are compared.
    """
    settings: dict[Setting, list[dict[str, Any]]] = defaultdict(list)
    for one in some:
        settings[one["rate"], one["epochs"]].append(one)
    most = max(map(len, settings.values()))
    return max(
        ((setting, ran) for setting, ran in settings.items() if len(ran) == most),
        key=lambda setting: median(map(value, setting[1])),
    )


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def write_csv(path: Path, tables: Iterable[Table]) -> None:
    """A line for every number."""
    with written(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        heads = ("lowest", "highest", "seeds", "rate", "epochs")
        writer.writerow(["statistic", "source", "row", "task", "value", *heads])
        for table in tables:
            for row in table.rows:
                averages = {name: row.average(of) for name, of in table.averages.items()}
                for column, value in (averages | row.values).items():
                    if value is not None:
                        score = row.scores.get(column)
                        more = [getattr(score, head) for head in heads] if score else [""] * 5
                        line = [table.statistic, row.source, row.name, column, value]
                        writer.writerow([*line, *more])


def plot(path: Path, table: Table) -> None:
    """A panel for every column: ours with their spread, the papers' as lighter marks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = table.shown()
    shown = [row for row in table.rows if any(column in row.values for column in columns)][::-1]
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
    figure.suptitle(table.title, fontsize=9)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
