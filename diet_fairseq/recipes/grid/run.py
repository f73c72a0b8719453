"""``grid run|table|plot GRID.toml``: trains what is missing, and shows what is finished."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ...errors import UserError
from ..common import cells, programs
from ..common.options import at_least, check_figure
from ..encoders import finetune
from . import fine_tuning, job, outcome, significance, table
from .job import Job
from .spec import read

#: kinds of runs that are validated as they are trained
CURVES = ("pretraining", "translation")
ACTIONS = {
    "run": "train what is missing; interrupted cells resume from their last checkpoint",
    "table": "print what is finished as Markdown",
    "plot": "draw the held-out loss, or another metric, of what is finished",
}
#: of a plot, unless another is named
FIGURE = Path("grid.png")
#: options of one action alone
OF_ACTION = {"baseline": "table", "at": "table", "metric": "plot", "output": "plot"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="; ".join(map(": ".join, ACTIONS.items())))
    parser.add_argument("grid", type=Path, metavar="GRID.toml", help="rows, seeds and budget")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="(all)")
    parser.add_argument("--seeds", nargs="+", type=at_least(1), metavar="SEED", help="(all)")
    parser.add_argument(
        "--jobs", type=at_least(1), default=1, help="cells side by side (%(default)s)"
    )
    parser.add_argument(
        "--gpus",
        type=at_least(0),
        default=0,
        help="for each cell, or, of fine-tunings, for all; 0: the CPU (%(default)s)",
    )
    parser.add_argument(
        "--baseline", metavar="ROW", help="table: differences from this row, which is shown, too"
    )
    parser.add_argument(
        "--at", type=at_least(1), metavar="UPDATE", help="the loss after so many updates"
    )
    parser.add_argument("--metric", choices=outcome.METRICS, help="plot (loss)")
    parser.add_argument("--output", type=Path, help=f"plot ({FIGURE})")


def run(args: Namespace) -> int:
    """Do what the command line says; the status to exit with."""
    grid = read(args.grid)
    chosen = grid.only(args.rows, args.seeds, args.baseline)
    tuned = grid.kind == "fine-tuning"
    for name, action in OF_ACTION.items():
        value = getattr(args, name)
        if value is not None and args.action != action:
            raise UserError(f"--{name} {value} goes with {action}: leave it out, or take {action}")
    figure = args.output or FIGURE
    if args.action == "plot":
        check_figure("--output", figure)
    if args.action == "run":
        if tuned:
            some = [one for row in fine_tuning.tunings(grid, chosen).values() for one in row]
            return finetune.run(some, programs.devices(args.gpus), args.jobs)
        return cells.run_all([Job(grid, cell, args.gpus) for cell in chosen], args.jobs)
    found = (fine_tuning if tuned else job).finished(grid, chosen)
    if not found:
        print("nothing is finished yet")
        return 0
    if (args.at is not None or args.action == "plot") and grid.kind not in CURVES:
        raise UserError(
            f"{args.grid}: a grid of the kind {grid.kind} has no curves: ask for a table"
        )
    if args.at is not None:
        found = table.at_update(found, args.at)
    if args.action == "table":
        tested = {}
        if args.baseline in found and grid.kind == "translation" and args.at is None:
            tested = significance.bootstrap(grid, chosen, args.baseline)
        print(table.markdown(found, args.baseline, grid.measures, tested))
    else:
        table.plot(found, figure, args.metric or "loss")
        print(f"wrote {figure}")
    return 0
