"""``diet-fairseq tables``: the papers' rows, what runs them, what came out, what they cost."""

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--format", choices=("markdown", "html", "json"), default="markdown", help="(%(default)s)")
    add("--papers", type=Path, metavar="FILE", help="paper_tables.json: the papers' numbers")
    add("--results", type=Path, metavar="FOLDER", nargs="+", default=[],
        help="recipes' folders (roberta, wmt18), whose finished fine-tunings and translations are "
             "shown")  # fmt: skip


def run(args: Namespace) -> None:
    from ..ledger.entries import tables
    from ..ledger.written import FORMATS

    print(FORMATS[args.format](tables(args.papers, args.results)), end="")
