"""The command line: ``run.py prepare|train|evaluate``, with a corpus's own defaults."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from common.arguments import Parser

from .recipes import Corpus

COMMANDS = {
    "prepare": "from raw text to what fairseq-train reads",
    "train": "show the fairseq-train command, and run it",
    "evaluate": "translate the test set, and score it",
}


def main(corpus: Corpus, description: str) -> None:
    parser = Parser(description=description)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_ in COMMANDS.items():
        rest = "What stands here and is not known to this command is passed to fairseq-train."
        passes_on = name == "train"
        subparser = subparsers.add_parser(
            name, help=help_, epilog=rest if passes_on else None, allow_abbrev=not passes_on
        )
        if name in sys.argv[1:2]:
            add_arguments(subparser, name, corpus)

    args, more = parser.parse_known_args()
    parser.check(args)
    if more and args.command != "train":
        parser.error(f"unknown: {' '.join(more)}")

    from diet_fairseq.interrupts import interruptible

    from . import evaluate, prepare, train
    from .corpora import pair_of

    if args.folder is None:
        args.folder = Path(corpus.name, "-".join(pair_of(args.source, args.target)))
    with interruptible(lambda: "the same command goes on from here"):
        if args.command == "train":
            train.train(corpus.recipe, args, more)
        elif args.command == "prepare":
            prepare.prepare(corpus, args)
        else:
            evaluate.evaluate(args)


def add_arguments(parser: ArgumentParser, command: str, corpus: Corpus) -> None:
    """Of the one command that is called: fairseq, which it needs, takes seconds to import."""
    from . import evaluate, prepare, train

    if command == "prepare":
        parser.add_argument("source", metavar="SRC")
        parser.add_argument("target", metavar="TGT")
        prepare.add_arguments(parser, corpus)
    elif command == "train":
        train.add_arguments(parser, corpus.recipe)
    else:
        evaluate.add_arguments(parser, corpus.search, corpus.recipe.size)
    parser.add_argument(
        "--folder", type=Path, help=f"where everything is kept ({corpus.name}/SRC-TGT)"
    )
