"""The command line: ``run.py prepare|pretrain``."""

from argparse import ArgumentParser
from pathlib import Path

from . import prepare, pretrain


def main(description: str) -> None:
    parser = ArgumentParser(description=description)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    preparing = subparsers.add_parser("prepare", help="from raw text to what fairseq-train reads")
    prepare.add_arguments(preparing)
    training = subparsers.add_parser(
        "pretrain",
        help="show the fairseq-train command, and run it",
        epilog="What stands here and is not known to this command is passed to fairseq-train.",
        allow_abbrev=False,
    )
    pretrain.add_arguments(training)
    for command in subparsers.choices.values():
        command.add_argument(
            "--folder",
            type=Path,
            default=Path("roberta"),
            help="where everything is kept (%(default)s)",
        )

    args, more = parser.parse_known_args()
    if args.command == "pretrain":
        pretrain.pretrain(args, more)
        return
    if more:
        parser.error(f"unknown: {' '.join(more)}")
    prepare.prepare(args)
