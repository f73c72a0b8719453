"""``--corpus``, which sets the defaults of a command, and ``--folder``, for data and runs."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from ..common.options import folder_path
from .corpora import CORPORA
from .corpora.corpus import Corpus
from .corpora.raw import pair_of


def add_corpus(parser: ArgumentParser, words: Sequence[str] | None) -> Corpus:
    """Add ``--corpus``; returns the one that is named among the words to be parsed."""
    first = ArgumentParser(add_help=False, allow_abbrev=False)
    for one in (first, parser):
        one.add_argument(
            "--corpus",
            choices=CORPORA if one is parser else None,
            default="wmt18",
            help="corpus, with its files and defaults (%(default)s)",
        )
    named: str = first.parse_known_args(words)[0].corpus
    return CORPORA.get(named, CORPORA["wmt18"])  # the parser will refuse any other name


def add_folder(parser: ArgumentParser, corpus: Corpus) -> None:
    parser.add_argument(
        "--folder", type=folder_path, help=f"folder for all data and runs ({corpus.name}/SRC-TGT)"
    )


def corpus_of(args: Namespace) -> Corpus:
    return CORPORA[args.corpus]


def folder_of(corpus: str, source: str, target: str, named: Path | None) -> Path:
    """The folder that is named, else that of the pair of languages in the corpus's folder."""
    pair = pair_of(source, target)
    return named or Path(corpus, "-".join(pair))
