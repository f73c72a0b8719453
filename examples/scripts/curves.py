"""Draw the held-out loss of all runs: the mean over seeds, and a band from lowest to highest."""

import json
import logging
import math
import re
from argparse import ArgumentParser
from pathlib import Path
from statistics import mean

import matplotlib

from diet_fairseq.errors import exit_with_one_line


def read_losses(log: Path) -> dict[int, float]:
    """Updates -> loss in nats after them, from fairseq-train's log; fairseq's are to base 2."""
    entries = re.findall(r'^\{.*"valid_loss".*\}$', log.read_text(encoding="utf-8"), re.MULTILINE)
    points = [json.loads(entry) for entry in entries]
    return {int(p["valid_num_updates"]): float(p["valid_loss"]) * math.log(2) for p in points}


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="PNG")
    parser.add_argument("--logs", type=json.loads, required=True, help="label -> logs, as JSON")
    args = parser.parse_args()
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for label, logs in args.logs.items():
        curves = [read_losses(Path(log)) for log in logs]
        updates = sorted(set.intersection(*map(set, curves)))
        points = [[curve[update] for curve in curves] for update in updates]
        (line,) = axes.plot(updates, [mean(values) for values in points], label=label)
        low, high = [min(values) for values in points], [max(values) for values in points]
        axes.fill_between(updates, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="updates", ylabel="loss on held-out text, nats")
    figure.legend(loc="outside right upper")
    figure.savefig(args.output, dpi=150)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
