"""``score-xtreme LABELS PREDICTIONS``: XTREME's scores of folders laid out as its own scorer's.

LABELS/TASK/test-LANGUAGE.json are questions in SQuAD's format, and PREDICTIONS has a file of the
same name: ``{"ID": "answer", ...}``. Of a classification they are test-LANGUAGE.tsv, with a label a
line. MLQA's ``test-de-en.json``, German texts and English questions, counts in no mean.
"""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from ...data import answers
from ...errors import UserError
from ..common.json_files import read_json
from ..common.text import read_lines
from .squad import Question, read, unique_ids
from .xtreme_tasks import XTREME, XtremeTask

#: metric -> language, a pair of them, or "mean" -> percent
Scores = dict[str, dict[str, float]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("labels", metavar="LABELS", type=Path, help="TASK/test-LANGUAGE.json, .tsv")
    parser.add_argument("predictions", metavar="PREDICTIONS", type=Path, help="laid out alike")


def run(args: Namespace) -> None:
    print(json.dumps(scores(args.labels, args.predictions), indent=1))


def scores(labels: Path, predictions: Path) -> dict[str, Scores]:
    """Task -> metric -> language -> percent, of all that is predicted, and the languages' mean.

    Raises:
        UserError: there is nothing to score, a language is not the task's or has no labels, or
            there is not exactly one prediction for everything that is asked
    """
    found = {}
    for name, task in XTREME.items():
        suffix = "json" if task.rules else "tsv"
        files = sorted((predictions / name).glob(f"test-*.{suffix}"))
        if files:
            found[name] = averaged(task, {path: labels / name / path.name for path in files})
    if not found:
        raise UserError(
            f"{predictions} has no predictions of {', '.join(XTREME)}: put them into "
            f"{predictions}/TASK/test-LANGUAGE.json (.tsv for labels)"
        )
    return found


def averaged(task: XtremeTask, files: dict[Path, Path]) -> Scores:
    """Of a task: predictions -> labels."""
    found: Scores = {metric: {} for metric in task.metrics}
    for predicted, labelled in files.items():
        language = predicted.stem.removeprefix("test-")
        check_language(task, language, predicted)
        if task.rules:
            rules = task.rules(language)
            values = of_answers(read(labelled), answers_in(predicted), rules, predicted)
        else:
            values = of_labels(list(read_lines(labelled)), list(read_lines(predicted)), predicted)
        for metric, value in values.items():
            found[metric][language] = value
    for by_language in found.values():
        alone = [value for language, value in by_language.items() if language in task.languages]
        if alone:
            by_language["mean"] = fmean(alone)
    return found


def check_language(task: XtremeTask, language: str, where: Path) -> None:
    if not task.has(language):
        raise UserError(
            f"{where}: {task.name} has no language {language}: take {', '.join(task.languages)}"
        )


def answers_in(path: Path) -> dict[str, str]:
    found = read_json(path)
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise UserError(f'{path} must have one object, {{"ID": "answer", ...}}: correct the file')
    return found


def of_answers(
    questions: Sequence[Question], found: dict[str, str], rules: answers.Rules, where: Path
) -> dict[str, float]:
    """Exact match and F1 in percent, over all questions."""
    ids = unique_ids(list(questions))
    missing = [name for name in ids if name not in found]
    if missing:
        raise UserError(
            f"{where} has no answer to {len(missing):,} of {len(ids):,} questions, the first is "
            f"{missing[0]}: predict all of them"
        )
    if unknown := found.keys() - set(ids):
        raise UserError(
            f"{where} answers {len(unknown):,} questions that the labels don't have, one is "
            f"{min(unknown)}: give the labels that belong to it"
        )
    right = (question.right for question in questions)
    return answers.percent(zip((found[name] for name in ids), right, strict=True), rules)


def of_labels(right: Sequence[str], found: Sequence[str], where: Path) -> dict[str, float]:
    """Accuracy in percent."""
    if len(right) != len(found):
        raise UserError(
            f"{where} has {len(found):,} labels for {len(right):,} lines: predict all of them"
        )
    same = sum(one.strip() == other.strip() for one, other in zip(right, found, strict=True))
    return {"accuracy": 100.0 * same / len(right)}
