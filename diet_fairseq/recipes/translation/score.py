"""sacreBLEU's BLEU and chrF with their signatures."""

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics import BLEU, CHRF

from ...errors import UserError


def score(
    hypotheses: Sequence[str], references: Sequence[str], test_set: str = "", pair: str = ""
) -> dict[str, Any]:
    """BLEU and chrF of plain text; ``test_set`` and ``pair`` go into the signatures."""
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses):,} translations of {len(references):,} references")
    scores: dict[str, Any] = {"lines": len(references)}
    for name, metric in {"BLEU": BLEU(trg_lang=pair.rpartition("-")[2]), "chrF": CHRF()}.items():
        scores[name] = metric.corpus_score(hypotheses, [references]).score
        signature = metric.get_signature()
        if test_set:
            signature.update("test", test_set)
            signature.update("lang", pair)
        scores[f"{name} signature"] = str(signature)
    return scores
