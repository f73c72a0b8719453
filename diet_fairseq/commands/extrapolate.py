"""``diet-fairseq extrapolate``: quality by input length, also beyond the length in training."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..errors import UserError, silent_interrupts
from ..files import atomic_folder, refuse_existing
from .arguments import add_model_files, add_position_temperature, at_least

WINDOWS, SOURCES = [64, 128, 256, 512], [10, 20, 30, 40, 60, 80]


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", nargs="+",
        help="encoders or translation models, with position schemes or of stock "
             "fairseq")  # fmt: skip
    add("--text", type=Path, metavar="FILE", required=True,
        help="plain text to read, in the source language")  # fmt: skip
    add("--reference", type=Path, metavar="FILE", help="translation of the text, line by line")
    add("--lengths", type=at_least(2), metavar="N", nargs="+",
        help="encoders: window lengths in tokens (default: 64 128 256 512); translation: largest "
             "lengths of sources in each group (default: 10 20 30 40 60 80)")  # fmt: skip
    add("--tokens", type=at_least(2), default=32768, metavar="N",
        help="number of subwords that encoders read (default: %(default)s)")  # fmt: skip
    add("--beam", type=at_least(1), metavar="N",
        help="beam size of translation (default: from model.json, otherwise 5)")  # fmt: skip
    add("--out", type=Path, metavar="FOLDER", default=Path("extrapolate"),
        help="folder for the table (CSV) and the picture (default: %(default)s)")  # fmt: skip
    add_position_temperature(parser)
    add_model_files(parser)


def run(args: Namespace) -> None:
    refuse_existing(args.out)
    with silent_interrupts():
        from ..look import lengths, masked_words, translations
        from ..text.lines import read_pairs
        from ..translate.loading import load_transformer
        from ..translate.model_files import ModelOptions, resolve_model

    options = ModelOptions.from_args(args)
    descriptions = [resolve_model(path, options, translates=False) for path in args.checkpoint]
    models = map(load_transformer, descriptions)
    if not descriptions[0].source_lang:
        metrics, windows = masked_words.METRICS, sorted(set(args.lengths or WINDOWS))
        if args.tokens < windows[-1] - 1:  # a window begins with <s>
            raise UserError(
                f"--tokens must be at least {windows[-1] - 1}, the subwords of the largest window "
                f"of --lengths, but is {args.tokens}: raise it, or give smaller --lengths"
            )
        curves = [
            masked_words.measure_masked_words(model, args.text, windows, args.tokens)
            for model in models
        ]
    else:
        if args.reference is None:
            raise UserError("translation models need --reference FILE: the translation of --text")
        pairs = read_pairs(args.text, args.reference)
        lines = [pair for pair in pairs if all(map(str.strip, pair))]
        sizes = translations.source_lengths(descriptions[0], lines)
        metrics, ends = translations.METRICS, sorted(set(args.lengths or SOURCES))
        bins = translations.length_bins(sizes, ends)
        curves = [
            translations.measure_translations(model, options, lines, bins, args.beam)
            for model in models
        ]
    with atomic_folder(args.out) as folder:
        lengths.write_curves(curves, metrics, folder)
    print(lengths.render_markdown(curves))
    print(f"\nwrote {args.out / lengths.CSV} and {args.out / lengths.PNG}")
