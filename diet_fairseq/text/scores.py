"""Scores by sacreBLEU: BLEU and chrF with signatures, and significance tests."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import UserError
from .languages import bleu_tokenizer

#: samples of a paired bootstrap (Koehn 2004)
SAMPLES = 1000
#: sacreBLEU's seed of a paired bootstrap
SEED = 12345
#: sacreBLEU's tokenizer -> command that installs its packages
NEEDED = {f"{language}-mecab": f"pip install 'sacrebleu[{language}]'" for language in ("ja", "ko")}
#: source and target language, such as ("en", "zh-CN")
Pair = tuple[str, str]


def bleu(language: str, tokenizer: str = "auto") -> Any:
    """sacreBLEU's BLEU with a tokenizer ("auto": the `bleu_tokenizer` of the target language).

    Raises:
        UserError: the tokenizer needs a package or a download that is missing
    """
    from sacrebleu.metrics import BLEU

    name = bleu_tokenizer(language) if tokenizer == "auto" else tokenizer
    try:
        return BLEU(tokenize=name)
    except (ImportError, RuntimeError, OSError) as error:
        reason = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
        advice = NEEDED.get(name, "connect to the internet once, so that sacreBLEU can download it")
        raise UserError(
            f"BLEU of language {language} needs sacreBLEU's tokenizer {name}, which fails "
            f"({reason}): {advice}, or choose a tokenizer that needs neither, such as char"
        ) from error


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    test_set: str = "",
    pair: Pair = ("", ""),
    tokenizer: str = "auto",
) -> dict[str, Any]:
    """BLEU and chrF of plain text; the signatures contain ``test_set`` and ``pair``.

    Raises:
        UserError: the numbers of lines differ, or `bleu` refuses the tokenizer
    """
    from sacrebleu.metrics import CHRF

    if len(hypotheses) != len(references):
        raise UserError(
            f"there must be one translation for each of {len(references):,} references, but there "
            f"are {len(hypotheses):,}"
        )
    scores: dict[str, Any] = {"lines": len(references)}
    for name, metric in {"BLEU": bleu(pair[1], tokenizer), "chrF": CHRF()}.items():
        scores[name] = metric.corpus_score(hypotheses, [references]).score
        signature = metric.get_signature()
        if test_set:
            signature.update("test", test_set)
            signature.update("lang", "-".join(pair))
        scores[f"{name} signature"] = str(signature)
    return scores


def paired_bootstrap(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    pair: Pair = ("", ""),
    tokenizer: str = "auto",
) -> tuple[float, float]:
    """Difference in BLEU of a system from a baseline, and its p-value (Koehn 2004).

    The test covers the sentences of one test set, not the variance between seeds.
    """
    from sacrebleu.significance import PairedTest, Result

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    if list(system) == list(baseline):  # sacreBLEU's p would be 0
        return 0.0, 1.0
    outputs = [("baseline", baseline), ("system", system)]
    metrics = {"BLEU": bleu(pair[1], tokenizer)}
    paired = PairedTest(outputs, metrics, [references], "bs", n_samples=SAMPLES)
    first, second = (result for result in paired()[1]["BLEU"] if isinstance(result, Result))
    assert second.p_value is not None  # only the baseline has no p-value
    return second.score - first.score, second.p_value


def bootstrap_means(baseline: Sequence[float], system: Sequence[float]) -> tuple[float, float]:
    """Difference in the mean score of sentences from a baseline, and its p-value (Koehn 2004).

    The p-value has sacreBLEU's definition: the share of samples whose difference deviates from the
    difference of all sentences by at least this difference.

    Raises:
        UserError: the numbers of sentences differ
    """
    if len(system) != len(baseline):
        raise UserError(
            f"a paired test needs the same sentences, but there are {len(system):,} scores of a "
            f"system and {len(baseline):,} of its baseline: run the metric again"
        )
    differences = np.subtract(system, baseline)
    gain = differences.mean()
    draw = np.random.default_rng(SEED)
    means = np.array([draw.choice(differences, len(differences)).mean() for _ in range(SAMPLES)])
    deviations = int((abs(means - gain) >= abs(gain)).sum())
    return float(gain), (deviations + 1) / (SAMPLES + 1)
