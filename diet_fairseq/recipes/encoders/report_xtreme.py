"""``report`` for XTREME: the form of DIET's tables 3 and 5, and every language by itself."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ..common import cells
from .prepare_task import load_task
from .report_table import GUESS, Found, Row, Score, Setting, Table, best_setting, number, of_ours
from .tuning import on_dev
from .xtreme_tasks import Transfer

#: DIET's columns; its average is their plain mean (20 of its 22 printed averages are)
COLUMNS = (
    "XNLI",
    *(f"{task}-{metric}" for task in ("XQuAD", "MLQA", "TyDiQA") for metric in ("F1", "EM")),
)
SHORT = {"accuracy": "", "f1": "-F1", "exact_match": "-EM"}
PAPERS = {
    "diet_table3_xtreme": "DIET, table 3",
    "diet_table5_xtreme_ablation": "DIET, table 5",
}
TITLE = (
    "XTREME, fine-tuned in English: means over languages, at the checkpoint that is best on "
    "English held out, median over seeds, at the learning rate that is best there (least to most)"
)
AVERAGES = {"DIET's avg.": COLUMNS}
#: what a mean of rounded numbers may be off
ROUNDING = 0.051


def transfers(found: Found, folder: Path) -> dict[str, Transfer]:
    """XTREME's among the tasks that were fine-tuned on."""
    names = sorted({task for of_tasks in found.values() for task in of_tasks})
    tasks = ((name, load_task(folder / "tasks" / name)) for name in names)
    return {name: task for name, task in tasks if isinstance(task, Transfer)}


def own(found: Found, folder: Path) -> Iterator[Row]:
    """Our rows, after those of answers and labels that need no learning."""
    tasks = transfers(found, folder)
    guesses: dict[str, Row] = {}
    for name, task in tasks.items():
        path = folder / "tasks" / name / "encoded" / "guess.json"
        for guess, metrics in (guessed(path, task) if path.exists() else {}).items():
            row = guesses.setdefault(guess, Row("ours", guess))
            row.values |= averaged(task, metrics)
    yield from guesses.values()
    for name, of_tasks in found.items():
        ran = {one: tasks[one] for one in of_tasks if one in tasks}
        for trained_on, some in by_training_set(ran).items():
            for row in of_ours({name: of_tasks}, some, scores):
                if trained_on:  # no paper's row is
                    row.name, row.models = f"{name}, on {trained_on}", ()
                yield row


def by_training_set(tasks: dict[str, Transfer]) -> dict[str, dict[str, Transfer]]:
    """Tasks that make a row together: those of one training set, and XNLI, which has its own."""
    labels = {name: task for name, task in tasks.items() if not (task.questions or task.trained_on)}
    found: dict[str, dict[str, Transfer]] = {}
    for name, task in tasks.items():
        if name not in labels:
            found.setdefault(task.trained_on, {})[name] = task
    for some in found.values():
        if all(task.questions for task in some.values()):
            some |= labels
    if not any(labels.keys() <= some.keys() for some in found.values()):
        found[""] = labels
    return dict(sorted(found.items()))


def guessed(path: Path, task: Transfer) -> dict[str, dict[str, dict[str, float]]]:
    """Baseline -> split -> metric -> percent."""
    found = cells.load(path)
    return found if task.questions else {GUESS: found}


def averaged(task: Transfer, metrics: dict[str, dict[str, float]]) -> dict[str, float]:
    """Column -> percent, out of split -> metric -> percent: each language, and the mean of all.

    MLQA's pairs of two languages (``de-en``) count in no mean.
    """
    found: dict[str, float] = {}
    for metric in task.metrics:
        column = task.benchmark + SHORT[metric]
        of = {task.dev_files[split]: one[metric] for split, one in metrics.items()}
        of.pop("dev", None)
        alone = [value for language, value in of.items() if "-" not in language]
        if alone:
            found[column] = fmean(alone)
        found |= {f"{column} {language}": value for language, value in of.items()}
    return found


def scores(task: Transfer, some: list[dict[str, Any]]) -> dict[str, Score]:
    """Of every column, at the best learning rate and epochs."""
    best, seeds = of_seeds(task, some)
    found = {}
    for column in seeds[min(seeds)]:
        several = [one[column] for one in seeds.values()]
        spread = (median(several), min(several), max(several))
        found[column] = Score(*spread, len(several), *best)
    return found


def of_seeds(
    task: Transfer, some: list[dict[str, Any]]
) -> tuple[Setting, dict[int, dict[str, float]]]:
    """`best_setting` on English held out; seed -> `averaged`."""
    best, ran = best_setting(some, lambda one: on_dev(task, one)[1])
    return best, {one["seed"]: averaged(task, at_best(task, one)) for one in ran}


def means(
    task: Transfer, some: list[dict[str, Any]]
) -> tuple[Setting, dict[str, dict[int, float]]]:
    """The best learning rate and epochs; means over languages: column -> seed -> percent."""
    best, seeds = of_seeds(task, some)
    columns = {task.name + SHORT[one]: task.benchmark + SHORT[one] for one in task.metrics}
    return best, {
        name: {seed: one[column] for seed, one in seeds.items() if column in one}
        for name, column in columns.items()
    }


def at_best(task: Transfer, one: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Split -> metric -> percent at that checkpoint: no test set is selected by."""
    update, _ = on_dev(task, one)
    return {split: dict(one["curves"][split])[update] for split in task.dev_files}


def table(rows: list[Row]) -> Table:
    return Table("xtreme", TITLE, rows, COLUMNS, AVERAGES, more=False)


def more(rows: list[Row], tasks: dict[str, Transfer]) -> str:
    """What is said after the table: averages that are misprints, and every task's languages."""
    ours = [row for row in rows if row.source == "ours"]
    benchmarks: dict[str, list[Transfer]] = defaultdict(list)
    for task in tasks.values():
        benchmarks[task.benchmark].append(task)
    parts = (by_language(ours, of_one) for of_one in benchmarks.values())
    return "\n\n".join(["", *filter(None, [misprints(rows)]), *parts])


def by_language(rows: list[Row], tasks: list[Transfer]) -> str:
    """A table of a benchmark's languages; the tasks differ in their training set."""
    [task, *_] = tasks
    languages = list(dict.fromkeys(one for task in tasks for one in task.languages))
    lines = [["row", *languages], ["---"] * (1 + len(languages))]
    for row in rows:
        texts = [
            " / ".join(
                number(row.values.get(f"{task.benchmark}{SHORT[metric]} {language}"))
                for metric in task.metrics
            )
            for language in languages
        ]
        if any(text.strip(" /") for text in texts):
            lines.append([row.name, *texts])
    shown = " / ".join({"f1": "F1", "exact_match": "exact match"}.get(m, m) for m in task.metrics)
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{task.benchmark}, {shown}\n\n{body}"


def misprints(rows: list[Row]) -> str:
    """What the papers print as an average that is none."""
    found = []
    for row in rows:
        printed, average = row.values.get("Avg"), row.average(COLUMNS)
        if printed is not None and average is not None and abs(printed - average) > ROUNDING:
            found.append(
                f"{row.source} prints {printed} as the average of {row.name}, whose numbers have "
                f"the mean {average:.2f}.  "
            )
    return "\n".join(found)
