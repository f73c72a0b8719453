"""``grid``: pretrains an encoder with every position scheme with the same budget.

A finished cell is one JSON file in the folder of results; a cell that was cut goes on from
fairseq's last checkpoint. ``--table`` prints what is finished as Markdown, ``--plot`` draws it.
"""

import math
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from ...errors import UserError
from ..common import cells, grid, train_log
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
    grid.add_arguments(parser, ROWS, "tiny", 1000)
    parser.add_argument("--encoder", choices=("roberta", "bert"), default="roberta")
    parser.add_argument("--preset", default="machine", help="(%(default)s)")
    parser.add_argument("--batch", type=int, help="samples in an update (the preset's)")
    parser.add_argument("--length", type=int, help="tokens in a sample (the preset's)")
    parser.add_argument("--data", type=Path, default=USUAL, help="prepared folder (%(default)s)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw what is finished, and end")


def run(args: Namespace, more: list[str]) -> int:
    wanted = [Cell(row, seed, args, tuple(more)) for seed in args.seeds for row in args.rows]
    if args.table:
        print(table(wanted))
    if args.plot:
        plot(wanted, args.plot)
    return 0 if args.table or args.plot else cells.run_all(wanted, args.jobs)


@dataclass(frozen=True)
class Cell(grid.Cell):
    """A row and a seed: pretrained, and validated on held-out text."""

    @property
    def name(self) -> str:
        budget = self.budget
        shape = [f"{name}{value}" for name, value in self.shape.items()]
        return self.named(budget.encoder, budget.preset, budget.size, budget.updates, *shape)

    @property
    def shape(self) -> dict[str, int]:
        """What a batch is, where the preset doesn't say it."""
        found = {name: getattr(self.budget, name) for name in ("batch", "length")}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def run_folder(self) -> Path:
        return self.budget.data / "runs" / self.name

    def steps(self) -> list[tuple[list[str], Path]]:
        words = ["-m", "diet_fairseq", "encoder", "pretrain", *ROWS[self.row], "--run", self.name]
        words += self.options("encoder", "preset", "size", "updates", "gpus", *self.shape)
        words += ["--folder", str(self.budget.data), "--seed", str(self.seed), *self.more]
        return [(words, self.run_folder / "pretrain.out")]

    def outcome(self) -> dict[str, Any]:
        budget, log = self.budget, self.run_folder / "train.log"
        curve = read_curve(log)
        if not curve or curve[-1][0] != budget.updates:
            raise UserError(f"the last update was not validated, see {log}")
        loss = curve[-1][1]
        return {
            "row": self.row,
            "seed": self.seed,
            "valid loss": loss,
            "perplexity": math.exp(loss),
            "curve": curve,
            **train_log.totals(log),
            **{name: getattr(budget, name) for name in ("encoder", "preset", "size", "jobs")},
            "gpus": budget.gpus,
            **self.shape,
        }

    def summary(self, outcome: dict[str, Any]) -> str:
        return f"loss {outcome['valid loss']:.3f}, perplexity {outcome['perplexity']:.1f}"


def read_curve(log: Path) -> list[tuple[int, float]]:
    """Updates, and the loss on the held-out text in nats; fairseq logs losses to base 2."""
    curve = train_log.curves(log).get("valid", [])
    return [(updates, values["loss"] * math.log(2)) for updates, values in curve]


def table(wanted: list[Cell]) -> str:
    """The table, and the commands that give it."""
    columns = {"valid loss, nats": ("valid loss", 3), "perplexity": ("perplexity", 1)}
    commands = [found[0]["command"] for _, found in grid.finished(wanted)]
    return "\n".join([*grid.table("row", wanted, columns), "", "```", *commands, "```"])


def plot(wanted: list[Cell], path: Path) -> None:
    """A curve for every row, the mean over its seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for number, (row, found) in enumerate(grid.finished(wanted)):
        updates = [update for update, _ in found[0]["curve"]]
        losses = [[dict(one["curve"])[update] for one in found] for update in updates]
        style = ("-", "--")[number // 10]
        axes.plot(updates, [mean(values) for values in losses], style, label=row)
    axes.set(xlabel="updates", ylabel="masked-LM loss on held-out text, nats")
    axes.legend()
    figure.savefig(path, dpi=150)
