"""What came out of finished runs, by row: of encoders' fine-tunings, and of translation."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from ..errors import UserError
from ..recipes.common import cells, settings
from ..recipes.encoders import report, report_xtreme
from ..recipes.encoders.report_table import RESULT, Row, results
from ..recipes.grid.spec import Cell
from ..recipes.translation.train import SIZES

#: row -> what it came to, and how many seeds
Found = dict[str, tuple[str, str]]
#: the same of one folder: row -> what was measured -> the value, and how many seeds
Measured = dict[str, dict[str, tuple[str, int]]]
#: benchmark -> what its paper's average is of
AVERAGES = {
    "glue, diet": report.DIET_AVERAGE,
    "glue, tupe": report.TUPE_AVERAGE,
    "xtreme": report_xtreme.COLUMNS,
}
#: of a run that has no name of its own, as `translation train` calls it
RUN = re.compile(rf"(?P<row>\w+)-(?P<size>{'|'.join(SIZES)})-(?P<pair>\w+-\w+)")


def of_folders(folders: Sequence[Path]) -> dict[str, Found]:
    """The results in recipes' folders, by benchmark.

    These are "glue, diet" and "glue, tupe" (each paper has a statistic and an average of its own),
    "xtreme" and "translation".

    Raises:
        UserError: a folder holds no finished run of either recipe, or what another one holds
    """
    found: dict[str, Measured] = defaultdict(lambda: defaultdict(dict))
    for folder in folders:
        for benchmark, rows in of_folder(folder).items():
            for row, measured in rows.items():
                if both := measured.keys() & found[benchmark][row].keys():
                    raise UserError(
                        f"--results {folder} holds {min(both)} of {row}, and so does a folder "
                        "before it, whose runs have the same names: give one of the two"
                    )
                found[benchmark][row] |= measured
    return {
        benchmark: {
            row: (
                ", ".join(f"{what} {value}" for what, (value, _) in measured.items()),
                ", ".join(map(str, sorted({seeds for _, seeds in measured.values()}))),
            )
            for row, measured in rows.items()
        }
        for benchmark, rows in found.items()
    }


def of_folder(folder: Path) -> dict[str, Measured]:
    """The results in a recipe's folder, by benchmark."""
    if translated := of_translation(folder):
        return {"translation": translated}
    if any(folder.glob(f"tasks/*/runs/*/*/{RESULT}")):
        return of_fine_tuning(folder)
    raise UserError(
        f"--results {folder} holds no finished cell of `encoder finetune`, and no score of "
        "`translation evaluate`: give a recipe's folder, such as roberta or wmt18"
    )


def of_fine_tuning(folder: Path) -> dict[str, Measured]:
    """Finished fine-tunings: GLUE's by each paper's statistic, XTREME's as means over languages."""
    finished = results(folder, None, None)
    rows = {f"glue, {paper}": report.own(finished, folder, paper) for paper in report.STATISTICS}
    rows["xtreme"] = report_xtreme.own(finished, folder)
    return {
        benchmark: {
            row.name: {
                f"{name} ({size_of(finished[row.name])})": value
                for name, value in measured(row, benchmark).items()
            }
            for row in some
            if row.name in finished  # others are no rows of the papers
        }
        for benchmark, some in rows.items()
    }


def measured(row: Row, benchmark: str) -> dict[str, tuple[str, int]]:
    """The paper's average, where the row has all that it is of, and the score of every task."""
    found = {
        name: (str(score), score.seeds)
        for name, score in row.scores.items()
        if benchmark != "xtreme" or " " not in name  # which has a column for every language, too
    }
    columns = AVERAGES[benchmark]
    average = row.average(columns)
    if average is None:
        return found
    return {"average": (f"{average:.1f}", min(found[name][1] for name in columns))} | found


def size_of(tasks: dict[str, list[dict[str, Any]]]) -> str:
    """The size of the model that a row's cells have fine-tuned, as in the names of `--arch`.

    Of fairseq's own it is the whole name, as a size may stand in options beside it.
    """
    [one, *_] = next(iter(tasks.values()))
    model = one["model"]
    if model["position_scheme"] is None:
        return model["arch"]
    _, _, suffix = model["arch"].partition(f"_{model['position_scheme']}")
    return suffix.removeprefix("_") or "base"


def of_translation(folder: Path) -> Measured:
    """BLEU of each pair of languages: the mean over the seeds of a grid, or one run's."""
    scores: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row, what, seed, bleu in translations(folder):
        scores[row][what][seed] = bleu
    return {
        row: {
            what: (f"{mean(seeds.values()):.1f}", len(seeds))
            for what, seeds in sorted(measured.items())
        }
        for row, measured in scores.items()
    }


def translations(folder: Path) -> Iterator[tuple[str, str, int, float]]:
    """Row, what was scored, seed and BLEU, of all runs of a corpus or of one of its pairs.

    What was scored tells apart what must not be averaged: the pair of languages, the grid of the
    run or the size of its model, and the test set. A run outside grids has one seed, called 1.
    """
    for place in (folder, *sorted(path for path in folder.glob("*-*") if path.is_dir())):
        for path in sorted(place.glob("results/*.json")):
            one = cells.load(path)
            if "BLEU" in one:
                row, seed = one["row"], one["seed"]
                grid = path.stem.removesuffix(Cell("", row, (), seed).run)
                yield row, described(one, place.name, f"grid {grid}"), seed, one["BLEU"]
        for path in sorted(place.glob("runs/*/evaluation-*/scores.json")):
            named = RUN.fullmatch(path.parent.parent.name)  # a grid's cells have other names
            if named:
                one, run = cells.load(path), path.parent.parent
                what = ", ".join([named["size"], *other_start(run)])
                yield named["row"], described(one, named["pair"], what), 1, one["BLEU"]


def other_start(run: Path) -> list[str]:
    """What is said of a run whose scores didn't start as in the papers."""
    path = run / settings.NAME
    local = path.exists() and cells.load(path).get("position_start") == "local"
    return ["gain and local start"] * local


def described(scores: dict[str, Any], pair: str, run: str) -> str:
    """The pair of languages, the run, and the test set where it isn't the papers'."""
    signature = dict(
        part.split(":", 1) for part in scores.get("BLEU signature", "").split("|") if ":" in part
    )
    test = signature.get("test", "no test set named")
    particular = [run] if test == "wmt18" else [run, test]
    return f"{signature.get('lang', pair)} ({', '.join(particular)})"
