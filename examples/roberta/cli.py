"""The command line: ``run.py prepare|pretrain|prepare-glue|prepare-task|finetune|...``."""

import logging
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from diet_fairseq.interrupts import interruptible

from . import ablate, finetune, predict, prepare, prepare_task, pretrain, report


class Command(NamedTuple):
    """What a command says of itself, its arguments, and what it does."""

    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[..., int | None]
    #: what it does not know is passed to fairseq-train
    passes_on: bool = False


COMMANDS = {
    "prepare": Command(
        "from raw text to what fairseq-train reads", prepare.add_arguments, prepare.prepare
    ),
    "pretrain": Command(
        "show the fairseq-train command, and run it",
        pretrain.add_arguments,
        pretrain.pretrain,
        passes_on=True,
    ),
    "prepare-glue": Command(
        "GLUE's files to what finetune reads",
        prepare_task.add_glue_arguments,
        prepare_task.prepare_glue,
    ),
    "prepare-task": Command(
        "tab-separated values of your own to what finetune reads",
        prepare_task.add_task_arguments,
        prepare_task.prepare_task,
    ),
    "finetune": Command(
        "a task, with a grid of learning rates and seeds",
        finetune.add_arguments,
        finetune.finetune,
        passes_on=True,
    ),
    "ablate": Command(
        "pretrain and fine-tune the rows of one of DIET's ablations",
        ablate.add_arguments,
        ablate.ablate,
        passes_on=True,
    ),
    "report": Command(
        "GLUE's table of what is finished, beside the papers'",
        report.add_arguments,
        report.report,
    ),
    "predict": Command(
        "labels for GLUE's test sets, or for any tab-separated values",
        predict.add_arguments,
        predict.predict,
    ),
}


def main(description: str) -> int:
    # fairseq, imported, has all libraries tell all they do.
    logging.getLogger().setLevel(logging.WARNING)
    parser = ArgumentParser(description=description)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        epilog = "What stands here and is not known to this command is passed to fairseq-train."
        subparser = subparsers.add_parser(
            name,
            help=command.help,
            epilog=epilog if command.passes_on else None,
            allow_abbrev=not command.passes_on,
        )
        command.add_arguments(subparser)
        subparser.add_argument(
            "--folder",
            type=Path,
            default=Path("roberta"),
            help="where everything is kept (%(default)s)",
        )

    args, more = parser.parse_known_args()
    command = COMMANDS[args.command]
    if more and not command.passes_on:
        parser.error(f"unknown: {' '.join(more)}")
    with interruptible(lambda: "the same command goes on from here"):
        return command.run(args, *([more] if command.passes_on else [])) or 0
