"""The command line: ``run.py prepare|train|evaluate``, with a corpus's own defaults."""

from argparse import ArgumentParser
from pathlib import Path

from diet_fairseq.interrupts import interruptible

from . import evaluate, prepare, train
from .corpora import Corpus, pair_of


def main(corpus: Corpus, description: str) -> None:
    parser = ArgumentParser(description=description)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    preparing = subparsers.add_parser("prepare", help="from raw text to what fairseq-train reads")
    preparing.add_argument("source", metavar="SRC")
    preparing.add_argument("target", metavar="TGT")
    prepare.add_arguments(preparing, corpus)
    training = subparsers.add_parser(
        "train",
        help="show the fairseq-train command, and run it",
        epilog="What stands here and is not known to this command is passed to fairseq-train.",
        allow_abbrev=False,
    )
    train.add_arguments(training, corpus.recipe)
    evaluating = subparsers.add_parser("evaluate", help="translate the test set, and score it")
    evaluate.add_arguments(evaluating, corpus.search, corpus.recipe.size)
    for command in subparsers.choices.values():
        command.add_argument(
            "--folder", type=Path, help=f"where everything is kept ({corpus.name}/SRC-TGT)"
        )

    args, more = parser.parse_known_args()
    if args.folder is None:
        args.folder = Path(corpus.name, "-".join(pair_of(args.source, args.target)))
    if more and args.command != "train":
        parser.error(f"unknown: {' '.join(more)}")
    with interruptible(lambda: "the same command goes on from here"):
        if args.command == "train":
            train.train(corpus.recipe, args, more)
        elif args.command == "prepare":
            prepare.prepare(corpus, args)
        else:
            evaluate.evaluate(args)
