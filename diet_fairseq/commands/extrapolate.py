"""``diet-fairseq extrapolate``: quality by length of the input, beyond that of training."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from ..errors import UserError
from .arguments import (
    add_model_files,
    add_position_temperature,
    at_least,
    silence_logs,
)

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
    add("--reference", type=Path, metavar="FILE", help="translation of the text, line by line")
    add("--lengths", type=lengths, metavar="N,N,...",
        help="numbers of tokens in a window (default: 64,128,256,512); in translation largest "
             "numbers in a source (default: 10,20,30,40,60,80)")  # fmt: skip
    add("--tokens", type=at_least(2), default=32768, metavar="N",
        help="number of subwords that encoders read (default: %(default)s)")  # fmt: skip
    add("--beam", type=at_least(1), metavar="N",
        help="beam of translation (default: the model's)")  # fmt: skip
    add("--out", type=Path, metavar="FOLDER", default=Path("extrapolate"),
        help="folder for the table (CSV) and the picture (default: %(default)s)")  # fmt: skip
    add_position_temperature(parser)
    add_model_files(parser)


def run(args: Namespace) -> None:
    from ..export import folder
    from ..inference import model_files

    folder.check(args.out)
    from ..analysis import lengths, masked_words, translations
    from ..analysis.loaded_model import load

    silence_logs()
    pieces = model_files.Pieces.of(args)
    abouts = [model_files.resolve_model(path, pieces, translates=False) for path in args.checkpoint]
    are_encoders = {not about.source_lang for about in abouts}
    if len(are_encoders) > 1:
        raise UserError("extrapolate compares encoders or translation models: give one kind")
    named = list(zip(lengths.names(args.checkpoint), abouts, strict=True))
    if are_encoders == {True}:
        if args.reference or args.beam:
            raise UserError("--reference and --beam are for translation models: leave them out")
        windows = args.lengths or WINDOWS
        curves = [
            masked_words.measure(name, load(about), args.text, windows, args.tokens)
            for name, about in named
        ]
    else:
        if args.reference is None:
            raise UserError("translation models need --reference FILE: the translation of --text")
        lines = translations.pairs_to_translate(args.text, args.reference)
        sizes = translations.source_lengths(abouts[0], lines)
        bins = translations.bins(sizes, args.lengths or SOURCES)
        curves = [
            translations.measure(name, load(about), pieces, lines, bins, args.beam)
            for name, about in named
        ]
    with folder.create(args.out) as new:
        lengths.write(curves, new)
    print(lengths.markdown(curves))
    print(f"\nwrote {args.out / lengths.CSV} and {args.out / lengths.PNG}")
