"""The command line: ``run.py prepare|pretrain|prepare-glue|prepare-task|finetune|...``."""

import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from common.arguments import Parser


class Command(NamedTuple):
    """What a command says of itself, and its module's functions that make it.

    Only the module of the command that is called is imported: that takes seconds.
    """

    help: str
    module: str
    run: str
    add_arguments: str = "add_arguments"
    #: what it does not know is passed to fairseq-train
    passes_on: bool = False

    def function(self, name: str) -> Any:
        return getattr(import_module(f".{self.module}", __package__), name)


COMMANDS = {
    "prepare": Command("from raw text to what fairseq-train reads", "prepare", "prepare"),
    "pretrain": Command(
        "show the fairseq-train command, and run it", "pretrain", "pretrain", passes_on=True
    ),
    "prepare-glue": Command(
        "GLUE's files to what finetune reads",
        "prepare_task",
        "prepare_glue",
        "add_glue_arguments",
    ),
    "prepare-task": Command(
        "tab-separated values of your own to what finetune reads",
        "prepare_task",
        "prepare_task",
        "add_task_arguments",
    ),
    "finetune": Command(
        "a task, with a grid of learning rates and seeds", "finetune", "finetune", passes_on=True
    ),
    "ablate": Command(
        "pretrain and fine-tune the rows of one of DIET's ablations",
        "ablate",
        "ablate",
        passes_on=True,
    ),
    "report": Command("GLUE's table of what is finished, beside the papers'", "report", "report"),
    "predict": Command(
        "labels for GLUE's test sets, or for any tab-separated values", "predict", "predict"
    ),
}


def main(description: str) -> int:
    parser = Parser(description=description)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        epilog = "What stands here and is not known to this command is passed to fairseq-train."
        subparser = subparsers.add_parser(
            name,
            help=command.help,
            epilog=epilog if command.passes_on else None,
            allow_abbrev=not command.passes_on,
        )
        if name not in sys.argv[1:2]:
            continue
        command.function(command.add_arguments)(subparser)
        subparser.add_argument(
            "--folder",
            type=Path,
            default=Path("roberta"),
            help="where everything is kept (%(default)s)",
        )

    args, more = parser.parse_known_args()
    parser.check(args)
    command = COMMANDS[args.command]
    if more and not command.passes_on:
        parser.error(f"unknown: {' '.join(more)}")
    from diet_fairseq.interrupts import interruptible

    # fairseq, imported, has all libraries tell all they do.
    logging.getLogger().setLevel(logging.WARNING)
    run = command.function(command.run)
    with interruptible(lambda: "the same command goes on from here"):
        return run(args, *([more] if command.passes_on else [])) or 0
