"""Pretrains an encoder with every position scheme with the same budget.

A finished cell is one JSON file in the folder of results; a cell that was cut goes on from
fairseq's last checkpoint. ``--table`` prints what is finished as Markdown, ``--plot`` draws it.
"""

import json
import math
import platform
import re
import shlex
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from multi30k.results import read_log, spread
from translation.text import written

HERE = Path(__file__).parent
#: row of the table -> what `run.py pretrain` is given
ROWS = {
    "stock": ["stock"],
    "none": ["none"],
    "sinusoidal": ["sinusoidal"],
    "learned": ["learned"],
    "shaw": ["shaw"],
    "t5": ["t5"],
    "t5, learned input": ["t5", "--position-input", "learned"],
    "tupe_a": ["tupe_a"],
    "tupe_r": ["tupe_r"],
    "diet_rel": ["diet_rel"],
    "diet_abs": ["diet_abs"],
    "diet_abs, learned input": ["diet_abs", "--position-input", "learned"],
}


def arguments() -> tuple[Namespace, list[str]]:
    parser = ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="What is not known here is passed to fairseq-train.",
        allow_abbrev=False,
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--encoder", choices=("roberta", "bert"), default="roberta")
    parser.add_argument("--preset", default="machine", help="(%(default)s)")
    parser.add_argument("--size", default="tiny", help="(%(default)s)")
    parser.add_argument("--updates", type=int, default=1000, help="(%(default)s)")
    parser.add_argument("--gpus", type=int, default=0, help="per cell; 0: the CPU (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side (%(default)s)")
    parser.add_argument(
        "--data", type=Path, default=Path("roberta"), help="prepared folder (%(default)s)"
    )
    parser.add_argument("--results", type=Path, help="where the cells go (DATA/results)")
    parser.add_argument("--table", action="store_true", help="print what is finished, and end")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw what is finished, and end")
    return parser.parse_known_args()


@dataclass(frozen=True)
class Cell:
    """One run: a row and a seed, within the budget that all have in common."""

    row: str
    seed: int
    budget: Namespace
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        row, budget = re.sub(r"\W+", "-", self.row), self.budget
        parts = row, budget.encoder, budget.preset, budget.size, str(budget.updates)
        return "_".join([*parts, f"seed{self.seed}"])

    @property
    def result(self) -> Path:
        return (self.budget.results or self.budget.data / "results") / f"{self.name}.json"

    @property
    def found(self) -> dict[str, Any]:
        return json.loads(self.result.read_text(encoding="utf-8"))

    def command(self) -> list[str]:
        budget = self.budget
        command = [HERE / "run.py", "pretrain", *ROWS[self.row], "--run", self.name]
        for option in ("encoder", "preset", "size", "updates", "gpus"):
            command += [f"--{option}", getattr(budget, option)]
        command += ["--folder", budget.data, "--seed", self.seed, *self.more]
        return [str(part) for part in command]

    def run(self) -> str:
        """Pretrain, unless that is done; returns what came out in a line."""
        if self.result.exists():
            return "done before"
        run = self.budget.data / "runs" / self.name
        run.mkdir(parents=True, exist_ok=True)
        self.result.parent.mkdir(parents=True, exist_ok=True)
        with open(run / "pretrain.out", "ab") as file:
            command = [sys.executable, *self.command()]
            status = subprocess.call(command, stdout=file, stderr=subprocess.STDOUT)
        if status:
            return f"FAILED: pretrain ended with status {status}, see {run / 'pretrain.out'}"
        curve = read_curve(run / "train.log")
        if not curve or curve[-1][0] != self.budget.updates:
            return f"FAILED: the last update was not validated, see {run / 'train.log'}"
        found = {
            "row": self.row,
            "seed": self.seed,
            "valid loss": curve[-1][1],
            "perplexity": math.exp(curve[-1][1]),
            "curve": curve,
            **read_log(run / "train.log"),
            **{name: getattr(self.budget, name) for name in ("encoder", "preset", "size", "jobs")},
            "gpus": self.budget.gpus,
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "command": shlex.join(["python", *self.command()]),
        }
        with written(self.result) as file:
            file.write(json.dumps(found, indent=1) + "\n")
        return f"loss {found['valid loss']:.3f}, perplexity {found['perplexity']:.1f}"


def read_curve(log: Path) -> list[tuple[int, float]]:
    """Updates, and the loss on the held-out text in nats, of all parts of a resumed run.

    fairseq logs losses to base 2.
    """
    found = re.findall(
        r"\| valid on '\w+' subset \| loss ([\d.]+) .*\| num_updates (\d+)",
        log.read_text(encoding="utf-8"),
    )
    curve = {int(updates): float(bits) * math.log(2) for bits, updates in found}
    return sorted(curve.items())


def finished(cells: list[Cell]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Row by row, what came out for its seeds."""
    for row in ROWS:
        found = [cell.found for cell in cells if cell.row == row and cell.result.exists()]
        if found:
            yield row, found


def table(cells: list[Cell]) -> str:
    """Markdown: rows against means over seeds, the spread behind them; then the commands."""
    lines = [
        "| row | valid loss, nats | perplexity | parameters | minutes | seeds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    commands = []
    for row, found in finished(cells):
        loss = spread([one["valid loss"] for one in found], 3)
        perplexity = spread([one["perplexity"] for one in found], 1)
        minutes = mean(one["seconds"] for one in found) / 60
        seeds = ", ".join(str(one["seed"]) for one in found)
        parameters = f"{found[0]['parameters']:,}"
        lines.append(f"| {row} | {loss} | {perplexity} | {parameters} | {minutes:.1f} | {seeds} |")
        commands.append(found[0]["command"])
    return "\n".join([*lines, "", "```", *commands, "```"])


def plot(cells: list[Cell], path: Path) -> None:
    """A curve for every row, the mean over its seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for number, (row, found) in enumerate(finished(cells)):
        updates = [update for update, _ in found[0]["curve"]]
        losses = [[dict(one["curve"])[update] for one in found] for update in updates]
        style = ("-", "--")[number // 10]
        axes.plot(updates, [mean(values) for values in losses], style, label=row)
    axes.set(xlabel="updates", ylabel="masked-LM loss on held-out text, nats")
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> int:
    args, more = arguments()
    cells = [Cell(row, seed, args, tuple(more)) for seed in args.seeds for row in args.rows]
    if args.table or args.plot:
        if args.table:
            print(table(cells))
        if args.plot:
            plot(cells, args.plot)
        return 0
    started = time.monotonic()
    failed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for cell, outcome in zip(cells, pool.map(Cell.run, cells), strict=True):
            print(f"[{time.monotonic() - started:6.0f} s] {cell.name}: {outcome}", flush=True)
            failed += outcome.startswith("FAILED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
