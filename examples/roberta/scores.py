"""Metrics of fine-tuning, in percent; as a program, XTREME's scorer.

    scores.py LABELS PREDICTIONS

LABELS/TASK/test-LANGUAGE.json holds questions in SQuAD's format, and PREDICTIONS has a file of the
same name, ``{"ID": "answer", ...}``; of a classification both are test-LANGUAGE.tsv, a label a
line. It prints task -> metric -> language -> percent, and the mean over languages.
"""

import json
import re
import string
import unicodedata
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats
from sklearn import metrics
from squad_files import LARGEST, read_squad, right_answers

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import read_bytes, read_json

#: language -> words that MLQA leaves out of answers (Lewis et al. 2020, mlqa_evaluation_v1.py)
MLQA_ARTICLES = {
    "ar": r"\sال^|ال",  # the first half matches nothing, in MLQA's script, too
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "hi": "",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "zh": "",
}
CLASSIFICATION = ("accuracy", "f1", "matthews")
REGRESSION = ("pearson", "spearman")
QUESTIONS = ("f1", "exact_match")
#: XTREME's tasks, with the file ending of their predictions
XTREME = {"xnli": "tsv", "pawsx": "tsv", "xquad": "json", "mlqa": "json", "tydiqa": "json"}


def label_scores(
    names: Sequence[str], labels: Sequence[Any], predictions: Sequence[Any], positive: int = 1
) -> dict[str, float]:
    """Metrics of classes, or of numbers; a correlation with a constant is 0.

    Args:
        names: of `CLASSIFICATION` or `REGRESSION`
        positive: the class whose F1 is computed
    """
    right, predicted = np.asarray(labels), np.asarray(predictions)

    def correlation(function: Any) -> float:
        if len(right) < 2 or np.ptp(right) == 0 or np.ptp(predicted) == 0:
            return 0.0
        return float(function(predicted, right).statistic)

    known = {
        "accuracy": lambda: metrics.accuracy_score(right, predicted),
        "f1": lambda: metrics.f1_score(right == positive, predicted == positive, zero_division=0.0),
        "matthews": lambda: metrics.matthews_corrcoef(right, predicted),
        "pearson": lambda: correlation(stats.pearsonr),
        "spearman": lambda: correlation(stats.spearmanr),
    }
    return {name: 100 * float(known[name]()) for name in names}


def squad_words(text: str) -> list[str]:
    """The words of an answer as SQuAD compares them (evaluate-v1.1.py), in any language."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def mlqa_words(text: str, language: str) -> list[str]:
    """The words of an answer as MLQA compares them."""
    text = "".join(
        character
        for character in text.lower()
        if character not in string.punctuation and unicodedata.category(character)[0] != "P"
    )
    if MLQA_ARTICLES[language]:
        text = re.sub(MLQA_ARTICLES[language], " ", text)
    if language == "zh":  # every Chinese character is a word
        text = re.sub(r"([\u4e00-\u9fa5])", r" \1 ", text)
    return text.split()


def extractive_scores(
    answers: Mapping[str, str],
    right: Mapping[str, Sequence[str]],
    split: Callable[[str], list[str]],
) -> dict[str, float]:
    """F1 and exact match, in percent, of words as ``split`` gives them.

    As in the scripts of SQuAD 1.1 and MLQA, F1 is 0 without a common word, also where neither side
    has a word.

    Args:
        answers: id -> answer
        right: id -> right answers, of which the nearest counts
    """

    def f1(answer: list[str], reference: list[str]) -> float:
        common = (Counter(answer) & Counter(reference)).total()
        if not common:
            return 0.0
        precision, recall = common / len(answer), common / len(reference)
        return 2 * precision * recall / (precision + recall)

    pairs = [(split(answers[name]), list(map(split, texts))) for name, texts in right.items()]
    return {
        "f1": 100 * fmean(max(f1(answer, text) for text in texts) for answer, texts in pairs),
        "exact_match": 100 * fmean(float(answer in texts) for answer, texts in pairs),
    }


def question_scores(
    benchmark: str, language: str, answers: Mapping[str, str], right: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """By the rules of the benchmark; of a pair such as ``de-en`` by those of its text, German."""
    if benchmark.lower() != "mlqa":
        return extractive_scores(answers, right, squad_words)
    language = language.partition("-")[0]
    if language not in MLQA_ARTICLES:
        raise UserError(f"MLQA has no language {language}: use one of {', '.join(MLQA_ARTICLES)}")
    return extractive_scores(answers, right, partial(mlqa_words, language=language))


def score_folders(labels: Path, predictions: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Task -> metric -> language, a pair of languages or "mean" -> percent.

    Raises:
        UserError: there is nothing to score, or predictions are missing or superfluous
    """
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for task, ending in XTREME.items():
        for path in sorted((predictions / task).glob(f"test-*.{ending}")):
            language = path.stem.removeprefix("test-")
            reference = labels / task / path.name
            if ending == "tsv":
                values = score_labels(reference, path)
            else:
                values = score_answers(task, language, reference, path)
            for metric, value in values.items():
                scores.setdefault(task, {}).setdefault(metric, {})[language] = value
    if not scores:
        raise UserError(
            f"{predictions} has no predictions of {', '.join(XTREME)}: put them into "
            f"{predictions}/TASK/test-LANGUAGE.json (.tsv for labels)"
        )
    for by_metric in scores.values():
        for by_language in by_metric.values():  # MLQA's pairs, such as de-en, count in no mean
            by_language["mean"] = fmean(
                by_language[name] for name in by_language if "-" not in name
            )
    return scores


def score_answers(task: str, language: str, reference: Path, path: Path) -> dict[str, float]:
    """F1 and exact match of a file of answers."""
    right = right_answers(read_squad(reference))
    answers = read_json(path, LARGEST)
    if missing := [name for name in right if name not in answers]:
        raise UserError(
            f"{path} has no answer to {len(missing):,} of {len(right):,} questions, the first is "
            f"{missing[0]}: predict all of them"
        )
    if unknown := answers.keys() - right.keys():
        raise UserError(
            f"{path} answers {len(unknown):,} questions that {reference} lacks, for instance "
            f"{min(unknown)}: give the labels that belong to it"
        )
    return question_scores(task, language, answers, right)


def score_labels(reference: Path, path: Path) -> dict[str, float]:
    """Accuracy of a file of labels, one a line."""
    right, labels = (read_bytes(file, LARGEST).decode().split() for file in (reference, path))
    if len(right) != len(labels):
        raise UserError(
            f"{path} has {len(labels):,} labels for {len(right):,} lines: predict all of them"
        )
    return label_scores(["accuracy"], right, labels)


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("labels", type=Path, metavar="LABELS")
    parser.add_argument("predictions", type=Path, metavar="PREDICTIONS")
    args = parser.parse_args()
    print(json.dumps(score_folders(args.labels, args.predictions), indent=1))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
