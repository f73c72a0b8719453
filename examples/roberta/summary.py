"""Tables of finished runs: losses of pretraining, and fine-tuning by a paper's statistic.

``diet``: the median over seeds of a run's best evaluation (Chen et al. 2021, table 2); ``tupe``: of
its last one (Ke et al. 2021, section 4.1). Both at the learning rate and epochs that are best on
the first held-out set. Test sets are measured once, with the checkpoint that was best there.
"""

import json
import math
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pandas

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.files import atomic_file

STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "diet": max,
    "tupe": lambda values: values[-1],
}
#: entries of a curve that are no measure
OTHERS = ("update", "loss", "runtime", "per_second", "epoch")
#: name of the model that trainings start from
AS_IT_WAS = "as it was"
SETTING = ["model", "task", "rate", "epochs"]


def values_of(result: dict[str, Any], statistic: str) -> Iterator[tuple[str, float]]:
    """Every measure of a run with its value; the first one selects."""
    curve = result["curve"]
    for name in curve[0]:
        if not name.endswith(OTHERS):
            yield name, STATISTICS[statistic]([entry[name] for entry in curve])
    tests = result["tests"]
    values = [value for scores in tests.values() for value in scores.values()]
    if not any(isinstance(value, dict) for value in values):  # a classification has no benchmarks
        tests = {"test": tests}
    for benchmark, by_language in tests.items():
        means = defaultdict(list)
        for language, scores in by_language.items():
            for metric, value in scores.items():
                yield f"{benchmark} {metric} {language}", value
                if "-" not in language:  # MLQA's pairs count in no mean
                    means[metric].append(value)
        yield from ((f"{benchmark} {metric}", fmean(values)) for metric, values in means.items())


def tuning(args: Namespace) -> None:
    """Every measure's median over seeds, at the setting whose median is best by the first."""
    rows = []
    for path in args.results:  # RUN/TASK/NAME/result.json
        result = json.loads(path.read_text(encoding="utf-8"))
        setting = [*path.parts[-4:-2], result["rate"], result["epochs"]]
        for number, values in enumerate(values_of(result, args.statistic)):
            rows.append([*setting, *values, number == 0])
    runs = pandas.DataFrame(rows, columns=[*SETTING, "measure", "value", "selects"])
    runs = runs.set_index(SETTING)
    medians = runs[runs.selects].groupby(SETTING, sort=False).value.median()
    best = medians.groupby(["model", "task"], sort=False).idxmax()
    groups = runs.loc[best].groupby([*SETTING, "measure"], sort=False).value
    table = groups.agg(median="median", least="min", most="max", seeds="count").round(2)
    write_table(args.output, table.reset_index())


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a log of fairseq-train or fairseq-validate, which are JSON objects."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line[line.index("{") :]) for line in lines if '{"epoch"' in line]


def pretraining(args: Namespace) -> None:
    """The losses on held-out text, in bits, by fairseq-train's logs."""
    rows = []
    if args.start:
        losses = [entry["valid_loss"] for entry in read_log(args.start) if "valid_loss" in entry]
        loss = losses[-1] if losses else ""  # none of a model with a new head
        rows.append({"model": AS_IT_WAS, "valid loss, bits": loss, "least, bits": loss})
    for run in args.runs:
        entries = read_log(run / "train.log")
        valid = [entry for entry in entries if "valid_loss" in entry]
        speeds = [float(entry["wps"]) for entry in entries if "wps" in entry]
        losses = [entry["valid_loss"] for entry in valid]  # none with --disable-validation
        finite = [loss for loss in losses if math.isfinite(float(loss))]
        rows.append(
            {
                "model": run.name,
                "valid loss, bits": losses[-1] if losses else "",
                "least, bits": min(finite, key=float, default=""),
                "updates": valid[-1]["valid_num_updates"] if valid else "",
                "tokens per second": round(median(speeds)) if speeds else "",
            }
        )
    write_table(args.output, pandas.DataFrame(rows))


def adaptation(args: Namespace) -> None:
    """A row for each model, with its loss on held-out text and its measures of all tasks."""
    losses = pandas.read_csv(args.pretraining, index_col="model")["valid loss, bits"]
    table = losses.to_frame()
    if args.tables:
        measures = pandas.concat([pandas.read_csv(path) for path in args.tables])
        # the model before any training has a digest of its files in its name
        is_start = ~measures.model.isin(losses.index)
        measures.loc[is_start, "model"] = AS_IT_WAS
        measures["measure"] = measures.task + " " + measures.measure
        columns = list(dict.fromkeys(measures.measure))
        wide = measures.pivot(index="model", columns="measure", values="median")
        table = table.join(wide[columns])
    write_table(args.output, table.reset_index())


def write_table(path: Path, table: pandas.DataFrame) -> None:
    """A CSV file, and the same on the screen."""
    text = table.to_csv(index=False, lineterminator="\n")
    with atomic_file(path) as file:
        file.write(text)
    print(text, end="")


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("tuning")
    command.set_defaults(run=tuning)
    command.add_argument("output", type=Path)
    command.add_argument("--results", type=Path, nargs="+", required=True)
    command.add_argument("--statistic", choices=STATISTICS, default="diet")
    command = commands.add_parser("pretraining")
    command.set_defaults(run=pretraining)
    command.add_argument("output", type=Path)
    command.add_argument("--runs", type=Path, nargs="+", required=True)
    command.add_argument("--start", type=Path, help="log of fairseq-validate, of the first model")
    command = commands.add_parser("adaptation")
    command.set_defaults(run=adaptation)
    command.add_argument("output", type=Path)
    command.add_argument("--pretraining", type=Path, required=True)
    command.add_argument(
        "--tables", type=Path, nargs="*", default=[], help="tables that `tuning` wrote"
    )
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
