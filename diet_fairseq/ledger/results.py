"""What came out of finished runs, by row: of encoders' fine-tunings, and of translation."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from ..errors import UserError
from ..recipes.common import cells
from ..recipes.encoders import report, report_xtreme
from ..recipes.encoders.report_table import RESULT, results

#: row -> what it came to, and how many seeds
Found = dict[str, tuple[str, str]]
#: of a run that has no name of its own, as `translation train` calls it
RUN = re.compile(r"(?P<row>\w+)-\w+-(?P<pair>\w+-\w+)")


def of_folders(folders: Sequence[Path]) -> dict[str, Found]:
    """The results in recipes' folders, by benchmark: "glue", "xtreme" and "translation".

    Raises:
        UserError: a folder holds no finished run of either recipe
    """
    found: dict[str, Found] = {"glue": {}, "xtreme": {}, "translation": {}}
    for folder in folders:
        translated = of_translation(folder)
        if translated:
            found["translation"] |= translated
            continue
        tuned = any(folder.glob(f"tasks/*/runs/*/*/{RESULT}"))
        if not tuned:
            raise UserError(
                f"--results {folder} holds no finished cell of `encoder finetune`, and no score of "
                "`translation evaluate`: give a recipe's folder, such as roberta or wmt18"
            )
        for benchmark, rows in of_fine_tuning(folder).items():
            found[benchmark] |= rows
    return found


def of_fine_tuning(folder: Path) -> dict[str, Found]:
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
            row: (
                ", ".join(f"{name} {score}" for name, score in scores.items()),
                counts(score.seeds for score in scores.values()),
            )
            for row, scores in rows.items()
            if scores
        }
        for benchmark, rows in (("glue", glue), ("xtreme", xtreme))
    }


def of_translation(folder: Path) -> Found:
    """BLEU of each pair of languages: the mean over the seeds of a grid, or one run's."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, pair, bleu in translations(folder):
        scores[row][pair].append(bleu)
    return {
        row: (
            ", ".join(f"{pair} {mean(some):.1f}" for pair, some in sorted(pairs.items())),
            counts(len(some) for some in pairs.values()),
        )
        for row, pairs in scores.items()
    }


def translations(folder: Path) -> Iterator[tuple[str, str, float]]:
    """Row, pair of languages with the test set, and BLEU, of a corpus or of one of its pairs."""
    for place in (folder, *sorted(path for path in folder.glob("*-*") if path.is_dir())):
        for path in sorted(place.glob("results/*.json")):
            one = cells.load(path)
            if "BLEU" in one:
                yield one["row"], described(one, place.name), one["BLEU"]
        for path in sorted(place.glob("runs/*/evaluation-*/scores.json")):
            named = RUN.fullmatch(path.parent.parent.name)  # a grid's cells have other names
            if named:
                one = cells.load(path)
                yield named["row"], described(one, named["pair"]), one["BLEU"]


def described(scores: dict[str, Any], pair: str) -> str:
    """A pair of languages and, where it is known and not the papers', the test set."""
    signature = dict(
        part.split(":", 1) for part in scores.get("BLEU signature", "").split("|") if ":" in part
    )
    test = signature.get("test", "wmt18")
    return signature.get("lang", pair) + ("" if test == "wmt18" else f" ({test})")


def counts(seeds: Iterable[int]) -> str:
    """Different numbers of seeds, ascending."""
    return ", ".join(map(str, sorted(set(seeds))))
