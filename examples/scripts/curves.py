"""Draw held-out loss and BLEU of all runs: the mean over seeds, a band from lowest to highest.

With several directions, the loss of each has a plot of its own.
"""

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
#: number of plots side by side
COLUMNS = 3


def read_curve(log: Path, measure: str, unit: float) -> dict[int, float]:
    """Updates -> a measure after them, from fairseq-train's log."""
    subset = measure.rpartition("_")[0]
    pattern = rf'^\{{.*"{re.escape(subset)}_loss".*\}}$'
    entries = re.findall(pattern, log.read_text(encoding="utf-8"), re.MULTILINE)
    points = [json.loads(entry) for entry in entries]
    updates = f"{subset}_num_updates"
    return {int(p[updates]): float(p[measure]) * unit for p in points if measure in p}


def draw(axes: Any, label: str, runs: dict[str, list[dict[int, float]]]) -> None:
    """Draw the curves of a measure: name of the runs -> the curves of the seeds."""
    for name, curves in runs.items():
        updates = sorted(set.intersection(*map(set, curves)))
        points = [[curve[update] for curve in curves] for update in updates]
        (line,) = axes.plot(updates, [mean(values) for values in points], label=name)
        low, high = [min(values) for values in points], [max(values) for values in points]
        axes.fill_between(updates, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="updates", ylabel=label)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="PNG")
    parser.add_argument("--logs", type=json.loads, required=True, help="label -> logs, as JSON")
    parser.add_argument("--directions", nargs="*", default=[], help="such as en-de de-en")
    args = parser.parse_args()
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    matplotlib.use("Agg")
    from matplotlib import pyplot

    measures = MEASURES | {
        f"valid.{direction}_loss": (f"loss on held-out text, {direction}, nats", math.log(2))
        for direction in args.directions
    }
    curves = {
        measure: {
            name: [read_curve(Path(log), measure, unit) for log in logs]
            for name, logs in args.logs.items()
        }
        for measure, (_, unit) in measures.items()
    }
    drawn = [measure for measure in measures if any(map(any, curves[measure].values()))]
    drawn = drawn or [*measures][:1]  # an empty plot of runs without validation
    columns = min(len(drawn), COLUMNS)
    rows = math.ceil(len(drawn) / columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(9 * columns, 5 * rows), layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(drawn) :]:
        axes.set_axis_off()
    for axes, measure in zip(grid.flat, drawn, strict=False):
        draw(axes, measures[measure][0], curves[measure])
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(args.output, dpi=150)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
