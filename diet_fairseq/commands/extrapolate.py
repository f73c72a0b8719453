"""``diet-fairseq extrapolate``: quality by length of the input, beyond that of training."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..errors import UserError, silent_interrupts
from .arguments import add_model_files, add_position_temperature, at_least

WINDOWS, SOURCES = [64, 128, 256, 512], [10, 20, 30, 40, 60, 80]


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", nargs="+",
        help="encoders, or translation models; of ours or of stock fairseq")  # fmt: skip
    add("--text", type=Path, metavar="FILE", required=True,
        help="plain text to read, in the source language")  # fmt: skip
    add("--reference", type=Path, metavar="FILE", help="translation of the text, line by line")
    add("--lengths", type=at_least(2), metavar="N", nargs="+",
        help="numbers of tokens in a window (default: 64 128 256 512); in translation largest "
             "numbers in a source (default: 10 20 30 40 60 80)")  # fmt: skip
    add("--tokens", type=at_least(2), default=32768, metavar="N",
        help="number of subwords that encoders read (default: %(default)s)")  # fmt: skip
    add("--beam", type=at_least(1), metavar="N",
        help="beam of translation (default: the model's)")  # fmt: skip
    add("--out", type=Path, metavar="FOLDER", default=Path("extrapolate"),
        help="folder for the table (CSV) and the picture (default: %(default)s)")  # fmt: skip
    add_position_temperature(parser)
    add_model_files(parser)


def run(args: Namespace) -> None:
    with silent_interrupts():
        from ..export import folder
        from ..translate import model_files

    folder.check(args.out)
    from ..look import lengths, masked_words, translations
    from ..look.loaded_model import load
    from ..text.lines import read_pairs

    pieces = model_files.Pieces.of(args)
    abouts = [model_files.resolve_model(path, pieces, translates=False) for path in args.checkpoint]
    if not abouts[0].source_lang:
        metrics, windows = masked_words.METRICS, sorted(set(args.lengths or WINDOWS))
        curves = [
            masked_words.measure(load(about), args.text, windows, args.tokens) for about in abouts
        ]
    else:
        if args.reference is None:
            raise UserError("translation models need --reference FILE: the translation of --text")
        pairs = read_pairs(args.text, args.reference)
        lines = [pair for pair in pairs if all(map(str.strip, pair))]
        sizes = translations.source_lengths(abouts[0], lines)
        metrics, ends = translations.METRICS, sorted(set(args.lengths or SOURCES))
        bins = translations.bins(sizes, ends)
        curves = [
            translations.measure(load(about), pieces, lines, bins, args.beam) for about in abouts
        ]
    with folder.create(args.out) as new:
        lengths.write(curves, metrics, new)
    print(lengths.markdown(curves))
    print(f"\nwrote {args.out / lengths.CSV} and {args.out / lengths.PNG}")
