"""Draw held-out loss and BLEU of all runs: the mean over seeds, a band from lowest to highest."""

import json
import logging
import math
import re
from argparse import ArgumentParser
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

from diet_fairseq.errors import exit_with_one_line

#: names in fairseq-train's log -> label and unit; fairseq's losses are to base 2
MEASURES = {"valid_loss": ("loss on held-out text, nats", math.log(2)), "valid_bleu": ("BLEU", 1)}


def read_curve(log: Path, measure: str) -> dict[int, float]:
    """Updates -> a measure of `MEASURES` after them, from fairseq-train's log."""
    entries = re.findall(r'^\{.*"valid_loss".*\}$', log.read_text(encoding="utf-8"), re.MULTILINE)
    points = [json.loads(entry) for entry in entries]
    unit = MEASURES[measure][1]
    return {int(p["valid_num_updates"]): float(p[measure]) * unit for p in points if measure in p}


def draw(axes: Any, measure: str, runs: dict[str, list[dict[int, float]]]) -> None:
    """Draw the curves of a measure: label -> the curves of the seeds."""
    for label, curves in runs.items():
        updates = sorted(set.intersection(*map(set, curves)))
        points = [[curve[update] for curve in curves] for update in updates]
        (line,) = axes.plot(updates, [mean(values) for values in points], label=label)
        low, high = [min(values) for values in points], [max(values) for values in points]
        axes.fill_between(updates, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="updates", ylabel=MEASURES[measure][0])


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="PNG")
    parser.add_argument("--logs", type=json.loads, required=True, help="label -> logs, as JSON")
    args = parser.parse_args()
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = {
        measure: {
            label: [read_curve(Path(log), measure) for log in logs]
            for label, logs in args.logs.items()
        }
        for measure in MEASURES
    }
    measures = [measure for measure in MEASURES if any(map(any, curves[measure].values()))]
    measures = measures or [*MEASURES][:1]  # an empty plot of runs without validation
    figure, row = pyplot.subplots(
        1, len(measures), figsize=(9 * len(measures), 5), layout="constrained", squeeze=False
    )
    for axes, measure in zip(row[0], measures, strict=True):
        draw(axes, measure, curves[measure])
    figure.legend(*row[0, 0].get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(args.output, dpi=150)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
