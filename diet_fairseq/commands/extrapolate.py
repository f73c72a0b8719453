"""``diet-fairseq extrapolate``: quality by length of the input, beyond that of training."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .arguments import (
    add_force,
    add_model_files,
    add_position_temperature,
    at_least,
    silence_logs,
)

if TYPE_CHECKING:
    from ..analysis.lengths import Reading
    from ..model_json import ModelDescription

WINDOWS, SOURCES = [64, 128, 256, 512], [10, 20, 30, 40, 60, 80]


def lengths(text: str) -> list[int]:
    """Distinct numbers of at least 2, ascending, for ``add_argument(type=...)``."""
    try:
        numbers = sorted({int(number) for number in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 2:
        raise ArgumentTypeError(f"must be numbers of at least 2, such as 64,128, but is {text}")
    return numbers


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", nargs="+",
        help="encoders, or translation models; of ours or of stock fairseq")  # fmt: skip
    add("--text", type=Path, metavar="FILE", required=True,
        help="plain text to read, in the source language")  # fmt: skip
    add("--reference", type=Path, metavar="FILE", help="its translation, line by line")
    add("--lengths", type=lengths, metavar="N,N,...",
        help="tokens of a window (64,128,256,512); of a source at most, for translation "
             "(10,20,30,40,60,80, and what is longer)")  # fmt: skip
    add("--tokens", type=at_least(2), default=32768, metavar="N",
        help="subwords of the text that encoders read (%(default)s)")  # fmt: skip
    add("--beam", type=at_least(1), metavar="N", help="of translation (the model's own)")
    add("--out", type=Path, metavar="FOLDER", default=Path("extrapolate"),
        help="for the table (CSV) and the picture (%(default)s)")  # fmt: skip
    add_force(parser, "FOLDER")
    add_position_temperature(parser)
    add_model_files(parser)


def run(args: Namespace) -> None:
    from ..analysis import lengths as measured
    from ..export import folder
    from ..inference import model_files

    folder.check(args.out, args.force)
    silence_logs()
    pieces = model_files.Pieces.of(args)
    abouts = [model_files.resolve_model(path, pieces, translates=False) for path in args.checkpoint]
    encoders = {not about.source_lang for about in abouts}
    if len(encoders) > 1:
        raise UserError("extrapolate compares encoders or translation models: give those of a kind")
    readings = (_encoders if encoders == {True} else _translation)(args, abouts)
    with folder.create(args.out, args.force) as new:
        measured.write(readings, new)
    print(measured.markdown(readings))
    print(f"\nwrote {args.out / measured.CSV} and {args.out / measured.PNG}")


def _encoders(args: Namespace, abouts: "list[ModelDescription]") -> "list[Reading]":
    from ..analysis import loaded_model, masked_words
    from ..analysis.lengths import names

    if args.reference or args.beam:
        raise UserError("--reference and --beam are for translation models: leave them out")
    lengths = args.lengths or WINDOWS
    return [
        masked_words.reading(name, loaded_model.load(about), args.text, lengths, args.tokens)
        for name, about in zip(names(args.checkpoint), abouts, strict=True)
    ]


def _translation(args: Namespace, abouts: "list[ModelDescription]") -> "list[Reading]":
    from ..analysis import loaded_model, translations
    from ..analysis.lengths import names
    from ..inference.model_files import Pieces

    if args.reference is None:
        raise UserError("translation models need --reference FILE: the translation of --text")
    lines = translations.pairs(args.text, args.reference)
    sizes = translations.sizes(abouts[0], lines)
    bins = translations.bins(sizes, args.lengths or SOURCES)
    return [
        translations.reading(
            name, loaded_model.load(about), Pieces.of(args), lines, sizes, bins, args.beam
        )
        for name, about in zip(names(args.checkpoint), abouts, strict=True)
    ]
