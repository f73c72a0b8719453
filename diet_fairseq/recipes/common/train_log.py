"""What fairseq-train's log says of a run, with all parts of a resumed one."""

import re
from collections import defaultdict
from pathlib import Path

#: of a dev set, the updates and the metrics then
Curve = list[tuple[int, dict[str, float]]]


def totals(log: Path) -> dict[str, int]:
    """Parameters, updates and seconds, as fairseq counts them."""
    text = log.read_text(encoding="utf-8")
    [parameters, *_] = re.findall(r"num\. shared model params: ([\d,]+)", text)
    *_, updates = re.findall(r"\| num_updates (\d+)", text)
    *_, seconds = re.findall(r"\| wall (\d+)", text)
    return {
        "parameters": int(parameters.replace(",", "")),
        "updates done": int(updates),
        "seconds": int(seconds),
    }


def curves(log: Path) -> dict[str, Curve]:
    """The validations of each dev set; of two after the same update, the later one."""
    found: dict[str, dict[int, dict[str, float]]] = defaultdict(dict)
    for split, rest in re.findall(
        r"\| valid on '(\w+)' subset \| (.*)", log.read_text(encoding="utf-8")
    ):
        values = {
            name: float(value)
            for name, value in (part.rsplit(" ", 1) for part in rest.split(" | "))
            if re.fullmatch(r"-?[\d.]+(e-?\d+)?", value)
        }
        found[split][int(values["num_updates"])] = values
    return {split: sorted(curve.items()) for split, curve in found.items()}
