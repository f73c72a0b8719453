"""The outcome of a run: from fairseq's log, and from the scores beside it."""

import math
from pathlib import Path
from typing import Any

from ..common import cells, train_log

#: what criterion `electra` logs beside the loss; losses are to base 2
OF_ELECTRA = (
    "generator_loss",
    "generator_accuracy",
    "discriminator_loss",
    "discriminator_accuracy",
    "precision",
    "recall",
)
#: whose curves can be drawn
METRICS = ("loss", "mlm_loss", *OF_ELECTRA)


def of_pretraining(run: Path) -> dict[str, Any]:
    """Loss in nats after the last update, its curve, and what the log says of the run.

    With next-sentence prediction also the loss of masked words alone and the accuracy, of an
    ELECTRA each of `OF_ELECTRA`: the last values, and ``curves`` of them. Precision and recall are
    those of replaced tokens.
    """
    log = run / "train.log"
    curve = curve_of(log)
    if not curve:
        return {}
    found: dict[str, Any] = {"loss": curve[-1][1], "curve": curve, **train_log.totals(log)}
    _, last = train_log.curves(log)["valid"][-1]
    if "nsp_accuracy" in last:  # the loss is that of masked words and that of next sentences
        found["curves"] = {
            "mlm_loss": curve_of(log, "mlm_loss"),
            "NSP accuracy": curve_of(log, "nsp_accuracy"),
        }
    if "discriminator_accuracy" in last:
        found["curves"] = {name: curve_of(log, name) for name in OF_ELECTRA}
    return found | {name: curve[-1][1] for name, curve in found.get("curves", {}).items()}


def of_translation(run: Path) -> dict[str, Any]:
    """BLEU and chrF with their signatures, the validation's curve, and what the log says."""
    log, scores = run / "train.log", run / "evaluation-test" / "scores.json"
    if not scores.exists():
        return {}
    return {
        **cells.load(scores),
        "curve": curve_of(log),
        **train_log.totals(log),
    }


def of_script(run: Path) -> dict[str, Any]:
    """The numbers of its ``scores.json``; of one in a group, ``GROUP NAME`` is the name."""
    scores = run / "scores.json"
    if not scores.exists():
        return {}
    found: dict[str, Any] = {}
    for name, value in cells.load(scores).items():
        group = value if isinstance(value, dict) else {"": value}
        found |= {f"{name} {inner}".rstrip(): one for inner, one in group.items()}
    return {name: one for name, one in found.items() if isinstance(one, int | float)}


def curve_of(log: Path, metric: str = "loss") -> list[tuple[int, float]]:
    """(updates, the metric on held-out text); losses in nats, where fairseq's are to base 2."""
    curve = train_log.curves(log).get("valid", []) if log.exists() else []
    unit = math.log(2) if metric.endswith("loss") else 1
    return [(updates, values[metric] * unit) for updates, values in curve]
