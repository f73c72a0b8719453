"""Scores by sacreBLEU: BLEU and chrF with signatures, and significance tests."""

import logging
import re
from collections.abc import Sequence
from typing import Any

from ..errors import UserError

#: samples of a paired bootstrap (Koehn 2004)
SAMPLES = 1000
#: source and target language, such as ("en", "zh-CN")
Pair = tuple[str, str]


def bleu(pair: Pair) -> Any:
    """sacreBLEU's metric with the tokenizer of the target language, whatever its region."""
    from sacrebleu.metrics import BLEU

    return BLEU(trg_lang=re.split("[-_]", pair[1])[0])


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    test_set: str = "",
    pair: Pair = ("", ""),
) -> dict[str, Any]:
    """BLEU and chrF of plain text; ``test_set`` and ``pair`` go into the signatures."""
    from sacrebleu.metrics import CHRF

    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses):,} translations of {len(references):,} references")
    scores: dict[str, Any] = {"lines": len(references)}
    for name, metric in {"BLEU": bleu(pair), "chrF": CHRF()}.items():
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
) -> tuple[float, float]:
    """A system's difference in BLEU, as `score` computes it, from the baseline, and p (Koehn 2004).

    The test covers the sentences of one test set, not the variance between seeds.
    """
    from sacrebleu.significance import PairedTest, Result

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    if list(system) == list(baseline):  # sacreBLEU's p would be 0
        return 0.0, 1.0
    outputs = [("baseline", baseline), ("system", system)]
    paired = PairedTest(outputs, {"BLEU": bleu(pair)}, [references], "bs", n_samples=SAMPLES)
    first, second = (result for result in paired()[1]["BLEU"] if isinstance(result, Result))
    assert second.p_value is not None  # only the baseline has none
    return second.score - first.score, second.p_value
