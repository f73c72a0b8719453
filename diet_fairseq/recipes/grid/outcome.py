"""What came out of a run: read from fairseq's log and from the scores beside it."""

import json
import math
import re
from pathlib import Path
from typing import Any

from ..common.cells import read_log

#: fairseq's log in `--log-format simple`: a validation, its loss to base 2
VALIDATION = re.compile(r"\| valid on '\w+' subset \| loss ([\d.]+) (.*)\| num_updates (\d+)")
ACCURACY = re.compile(r"\| nsp_accuracy ([\d.]+) ")


def of_pretraining(run: Path) -> dict[str, Any]:
    """Loss in nats after the last update, its curve, and what the log says of the run."""
    curve = curve_of(run / "train.log")
    if not curve:
        return {}
    found: dict[str, Any] = {"loss": curve[-1][1], "curve": curve, **read_log(run / "train.log")}
    text = (run / "train.log").read_text(encoding="utf-8")
    accuracies = [ACCURACY.search(rest) for _, rest, _ in VALIDATION.findall(text)]
    if accuracies and accuracies[-1]:
        found["NSP accuracy"] = float(accuracies[-1][1])
    return found


def of_translation(run: Path) -> dict[str, Any]:
    """BLEU and chrF with their signatures, the validation's curve, and what the log says."""
    scores = run / "evaluation-test" / "scores.json"
    if not scores.exists():
        return {}
    return {
        **json.loads(scores.read_text(encoding="utf-8")),
        "curve": curve_of(run / "train.log"),
        **read_log(run / "train.log"),
    }


def curve_of(log: Path) -> list[tuple[int, float]]:
    """(updates, held-out loss in nats) of all parts of a resumed run."""
    if not log.exists():
        return []
    found = VALIDATION.findall(log.read_text(encoding="utf-8"))
    return sorted({int(updates): float(bits) * math.log(2) for bits, _, updates in found}.items())
