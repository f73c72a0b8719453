"""What came out of finished runs, by row: of encoders' fine-tunings, and of translation."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from ..errors import UserError
from ..recipes.common import cells
from ..recipes.encoders import report, report_xtreme
from ..recipes.encoders.report_table import RESULT, results
from ..recipes.grid.spec import Cell
from ..recipes.translation.train import SIZES

#: row -> what it came to, and how many seeds
Found = dict[str, tuple[str, str]]
#: the same of one folder: row -> what was measured -> the value, and how many seeds
Measured = dict[str, dict[str, tuple[str, int]]]
#: of a run that has no name of its own, as `translation train` calls it
RUN = re.compile(rf"(?P<row>\w+)-(?P<size>{'|'.join(SIZES)})-(?P<pair>\w+-\w+)")


def of_folders(folders: Sequence[Path]) -> dict[str, Found]:
    """The results in recipes' folders, by benchmark: "glue", "xtreme" and "translation".

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
    """Finished fine-tunings, by DIET's statistic; XTREME's tasks as means over their languages."""
    finished = results(folder, None, None)
    languages = " "  # is in the columns of XTREME's single languages
    glue = {row.name: row.scores for row in report.own(finished, folder, "diet")}
    xtreme = {
        row.name: {name: score for name, score in row.scores.items() if languages not in name}
        for row in report_xtreme.own(finished, folder)
    }
    return {
        benchmark: {
            row: {name: (str(score), score.seeds) for name, score in scores.items()}
            for row, scores in rows.items()
            if scores
        }
        for benchmark, rows in (("glue", glue), ("xtreme", xtreme))
    }


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
                one = cells.load(path)
                yield named["row"], described(one, named["pair"], named["size"]), 1, one["BLEU"]


def described(scores: dict[str, Any], pair: str, run: str) -> str:
    """The pair of languages, the run, and the test set where it isn't the papers'."""
    signature = dict(
        part.split(":", 1) for part in scores.get("BLEU signature", "").split("|") if ":" in part
    )
    test = signature.get("test", "no test set named")
    particular = [run] if test == "wmt18" else [run, test]
    return f"{signature.get('lang', pair)} ({', '.join(particular)})"
