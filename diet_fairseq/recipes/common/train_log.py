"""What fairseq-train's log says of a run, with all parts of a resumed one."""

import re
from collections import defaultdict
from pathlib import Path

#: of a dev set, the updates and the metrics then
Curve = list[tuple[int, dict[str, float]]]
#: a number as fairseq prints it: a million is 1e+06, and the loss of a run that diverged nan or inf
NUMBER = r"-?(?:[\d.]+(?:e[+-]?\d+)?|nan|inf)"


def totals(log: Path) -> dict[str, int]:
    """Parameters, updates and seconds, as fairseq counts them in the last part."""
    text = log.read_text(encoding="utf-8")
    *_, parameters = re.findall(r"num\. shared model params: ([\d,]+)", text)
    *_, updates = re.findall(rf"\| num_updates ({NUMBER})", text)
    *_, seconds = re.findall(rf"\| wall ({NUMBER})", text)
    return {
        "parameters": int(parameters.replace(",", "")),
        "updates done": int(float(updates)),
        "seconds": int(float(seconds)),
    }


def curves(log: Path) -> dict[str, Curve]:
    """The validations of each dev set; of two after the same update, the later one."""
    return {
        split: sorted({int(values["num_updates"]): values for values in found}.items())
        for split, found in points(log).items()
    }


def points(log: Path) -> dict[str, list[dict[str, float]]]:
    """Of each dev set what was measured, in this order; fairseq-validate's log has it, too."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    text = log.read_text(encoding="utf-8")
    for split, rest in re.findall(r"\| valid on '(\w+)' subset \| (.*)", text):
        values = (part.rsplit(" ", 1) for part in rest.split(" | "))
        found[split].append({name: float(one) for name, one in values if re.fullmatch(NUMBER, one)})
    return found
