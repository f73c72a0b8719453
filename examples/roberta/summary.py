"""Tables of finished runs: losses of pretraining, and fine-tuning by a paper's statistic.

``diet``: the median over seeds of a run's best evaluation (Chen et al. 2021, table 2); ``tupe``: of
its last one (Ke et al. 2021, section 4.1). Both at the learning rate and epochs that are best on
the first held-out set. Test sets are measured once, with the checkpoint that was best there.
"""

import csv
import json
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from diet_fairseq.atomic import written
from diet_fairseq.errors import UserError, exit_with_one_line

STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "diet": max,
    "tupe": lambda values: values[-1],
}
Row = dict[str, Any]


def read_results(paths: Iterable[Path]) -> dict[tuple[str, str], list[Row]]:
    """(pretrained model, task) -> the results of its fine-tunings, RUN/TASK/NAME/result.json."""
    results = defaultdict(list)
    for path in paths:
        run, task, *_ = path.parts[-4:]
        results[run, task].append(json.loads(path.read_text(encoding="utf-8")))
    return results


def measures(result: Row) -> list[str]:
    """The names of what was evaluated; the first one selects."""
    time = ("update", "loss", "runtime")
    return [
        name for name in result["curve"][0] if not name.endswith((*time, "per_second", "epoch"))
    ]


def value_of(result: Row, name: str, statistic: str) -> float:
    return float(STATISTICS[statistic]([entry[name] for entry in result["curve"]]))


def summarise(results: Sequence[Row], statistic: str) -> Iterable[Row]:
    """One row for each measure, at the setting whose median over seeds is best by the first."""
    names = measures(results[0])
    by_setting = defaultdict(list)
    for result in results:
        by_setting[result["rate"], result["epochs"]].append(result)
    (rate, epochs), best = max(
        by_setting.items(),
        key=lambda item: median(value_of(one, names[0], statistic) for one in item[1]),
    )
    columns = {name: [value_of(one, name, statistic) for one in best] for name in names}
    columns |= test_values(best)
    for name, values in columns.items():
        yield {
            "measure": name,
            "median": round(median(values), 2),
            "least": round(min(values), 2),
            "most": round(max(values), 2),
            "seeds": len(values),
            "rate": rate,
            "epochs": epochs,
        }


def test_values(results: Sequence[Row]) -> dict[str, list[float]]:
    """Measure -> value of each run: of every test set, and the mean over languages."""
    values = defaultdict(list)
    for result in results:
        tests = result["tests"]
        nested = isinstance(next(iter(next(iter(tests.values()), {}).values()), None), dict)
        groups = tests if nested else {"test": tests} if tests else {}
        for benchmark, languages in groups.items():
            means = defaultdict(list)
            for language, scores in languages.items():
                for metric, value in scores.items():
                    values[f"{benchmark} {metric} {language}"].append(value)
                    if "-" not in language:  # MLQA's pairs count in no mean
                        means[metric].append(value)
            for metric, several in means.items():
                values[f"{benchmark} {metric}"].append(fmean(several))
    return dict(values)


def tuning(args: Namespace) -> None:
    rows = [
        {"model": run, "task": task, **row}
        for (run, task), results in read_results(args.results).items()
        for row in summarise(results, args.statistic)
    ]
    write_table(args.output, rows)


def pretraining(args: Namespace) -> None:
    rows = []
    for path in (run / "train.log" for run in args.runs):
        entries = [json.loads(line[line.index("{") :]) for line in read_log(path)]
        valid = [entry for entry in entries if "valid_loss" in entry]
        if valid:
            best = min(valid, key=lambda entry: float(entry["valid_loss"]))
            speeds = [float(entry["wps"]) for entry in entries if "wps" in entry]
            rows.append(
                {
                    "model": path.parent.name,
                    "valid loss, bits": valid[-1]["valid_loss"],
                    "least, bits": best["valid_loss"],
                    "updates": valid[-1]["valid_num_updates"],
                    "tokens per second": round(median(speeds)) if speeds else "",
                }
            )
    if not rows:
        raise UserError(f"{args.runs[0]} holds no finished pretraining: run the workflow first")
    write_table(args.output, rows)


def read_log(path: Path) -> list[str]:
    """The lines of fairseq-train's log that hold JSON."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [line for line in lines if '{"epoch"' in line]


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """A CSV file, and the same on the screen."""
    with written(path) as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    print(path.read_text(encoding="utf-8"), end="")


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
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
