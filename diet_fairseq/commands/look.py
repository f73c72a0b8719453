"""``diet-fairseq look``: a page about the positions that a trained model has learned."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..errors import silent_interrupts
from ..files import atomic_folder, refuse_existing
from .arguments import add_model_files, at_least


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", nargs="+",
        help="one checkpoint, or several to compare; with position schemes or of stock "
             "fairseq")  # fmt: skip
    add("--out", type=Path, metavar="FOLDER", default=Path("look"),
        help="folder for index.html, pictures and tables (default: %(default)s)")  # fmt: skip
    add("--text", type=Path, metavar="FILE",
        help="text to read, in the source language (default: random words)")  # fmt: skip
    add("--length", type=at_least(4), metavar="N",
        help="number of tokens in a window, at most what the models can read (default: 128, or 64 "
             "in translation)")  # fmt: skip
    add_model_files(parser)


def run(args: Namespace) -> None:
    refuse_existing(args.out)
    with silent_interrupts():
        # Drawing libraries are optional: the command fails early if one is missing.
        from ..look import report
        from ..look.scores import look
        from ..look.windows import read_windows, window_length
        from ..translate.loading import load_transformer
        from ..translate.model_files import ModelOptions, resolve_model

    options = ModelOptions.from_args(args)
    models = [
        load_transformer(resolve_model(path, options, translates=False)) for path in args.checkpoint
    ]
    length = window_length(models, args.length)
    source = args.text.name if args.text else "random words (seed 1)"
    analyses = []
    for model in models:
        tokens = read_windows(model, length, args.text)
        text = f"{len(tokens)} windows of {length} tokens: {source}"
        analyses.append(report.Analysis(model, text, look(model, tokens)))
    with atomic_folder(args.out) as folder:
        report.write_report(analyses, folder)
    print(f"wrote {args.out / 'index.html'}")
