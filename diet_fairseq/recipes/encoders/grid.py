"""``grid``: pretrains an encoder with every position scheme with the same budget.

A finished cell is one JSON file in the folder of results; a cell that was cut goes on from
fairseq's last checkpoint. ``--table`` prints what is finished as Markdown, ``--plot`` draws it.
"""

import math
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from ..common import cells
from .folder import USUAL

#: row of the table -> what `pretrain` is given
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
    "linformer": ["linformer"],
    "diet_abs_lin": ["diet_abs_lin"],
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--encoder", choices=("roberta", "bert"), default="roberta")
    parser.add_argument("--preset", default="machine", help="(%(default)s)")
    parser.add_argument("--size", default="tiny", help="(%(default)s)")
    parser.add_argument("--updates", type=int, default=1000, help="(%(default)s)")
    parser.add_argument("--batch", type=int, help="samples in an update (the preset's)")
    parser.add_argument("--length", type=int, help="tokens in a sample (the preset's)")
    parser.add_argument("--gpus", type=int, default=0, help="per cell; 0: the CPU (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side (%(default)s)")
    parser.add_argument("--data", type=Path, default=USUAL, help="prepared folder (%(default)s)")
    parser.add_argument("--results", type=Path, help="where the cells go (DATA/results)")
    parser.add_argument("--table", action="store_true", help="print what is finished, and end")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw what is finished, and end")


def grid(args: Namespace, more: list[str]) -> int:
    wanted = [Cell(row, seed, args, tuple(more)) for seed in args.seeds for row in args.rows]
    if args.table:
        print(table(wanted))
    if args.plot:
        plot(wanted, args.plot)
    return 0 if args.table or args.plot else cells.run_all(wanted, args.jobs)


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
        given = [f"{name}{value}" for name, value in self.shape.items()]
        return "_".join([*parts, *given, f"seed{self.seed}"]) + cells.given(self.more)

    @property
    def shape(self) -> dict[str, int]:
        """What a batch is, where the preset doesn't say it."""
        found = {name: getattr(self.budget, name) for name in ("batch", "length")}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def result(self) -> Path:
        return (self.budget.results or self.budget.data / "results") / f"{self.name}.json"

    def command(self) -> list[str]:
        budget = self.budget
        command: list[Any] = [
            "-m",
            "diet_fairseq",
            "encoder",
            "pretrain",
            *ROWS[self.row],
            "--run",
            self.name,
        ]
        for option in ("encoder", "preset", "size", "updates", "gpus"):
            command += [f"--{option}", getattr(budget, option)]
        for option, value in self.shape.items():
            command += [f"--{option}", value]
        command += ["--folder", budget.data, "--seed", self.seed, *self.more]
        return [str(part) for part in command]

    def run(self) -> str:
        """Pretrain, unless that is done; returns what came out in a line."""
        if self.result.exists():
            return "done before"
        run = self.budget.data / "runs" / self.name
        failure = cells.run_logged(self.command(), run / "pretrain.out")
        if failure:
            return failure
        curve = read_curve(run / "train.log")
        if not curve or curve[-1][0] != self.budget.updates:
            return f"FAILED: the last update was not validated, see {run / 'train.log'}"
        loss = curve[-1][1]
        found = {
            "row": self.row,
            "seed": self.seed,
            "valid loss": loss,
            "perplexity": math.exp(loss),
            "curve": curve,
            **cells.read_log(run / "train.log"),
            **{name: getattr(self.budget, name) for name in ("encoder", "preset", "size", "jobs")},
            "gpus": self.budget.gpus,
            **self.shape,
        }
        cells.save(self.result, found, self.command())
        return f"loss {loss:.3f}, perplexity {math.exp(loss):.1f}"


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


def finished(grid: list[Cell]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Row by row, what came out for its seeds."""
    for row in ROWS:
        done = [cell for cell in grid if cell.row == row and cell.result.exists()]
        found = [cells.load(cell.result) for cell in done]
        if found:
            yield row, found


def table(grid: list[Cell]) -> str:
    """Markdown: rows against means over seeds, the spread behind them; then the commands."""
    lines = [
        "| row | valid loss, nats | perplexity | parameters | minutes | seeds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    commands = []
    for row, found in finished(grid):
        loss = cells.mean_and_deviation([one["valid loss"] for one in found], 3)
        perplexity = cells.mean_and_deviation([one["perplexity"] for one in found], 1)
        minutes = mean(one["seconds"] for one in found) / 60
        seeds = ", ".join(str(one["seed"]) for one in found)
        parameters = f"{found[0]['parameters']:,}"
        lines.append(f"| {row} | {loss} | {perplexity} | {parameters} | {minutes:.1f} | {seeds} |")
        commands.append(found[0]["command"])
    return "\n".join([*lines, "", "```", *commands, "```"])


def plot(grid: list[Cell], path: Path) -> None:
    """A curve for every row, the mean over its seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for number, (row, found) in enumerate(finished(grid)):
        updates = [update for update, _ in found[0]["curve"]]
        losses = [[dict(one["curve"])[update] for one in found] for update in updates]
        style = ("-", "--")[number // 10]
        axes.plot(updates, [mean(values) for values in losses], style, label=row)
    axes.set(xlabel="updates", ylabel="masked-LM loss on held-out text, nats")
    axes.legend()
    figure.savefig(path, dpi=150)
