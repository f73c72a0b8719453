"""``diet-fairseq look``: a page about the positions that a trained model has learned."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..errors import silent_interrupts
from .arguments import add_model_files, at_least


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", nargs="+",
        help="one checkpoint, or several to compare; of ours or of stock fairseq")  # fmt: skip
    add("--out", type=Path, metavar="FOLDER", default=Path("look"),
        help="folder for index.html, its pictures and its tables (default: %(default)s)"
        )  # fmt: skip
    add("--text", type=Path, metavar="FILE",
        help="text to read, in the source language (default: random words)")  # fmt: skip
    add("--length", type=at_least(4), metavar="N",
        help="tokens of a window, if the models can read so many (default: 128, in translation "
             "64)")  # fmt: skip
    add_model_files(parser)


def run(args: Namespace) -> None:
    with silent_interrupts():
        from ..export import folder
        from ..translate import model_files

    folder.check(args.out)
    # The drawing libraries are optional: a missing one is named before work begins.
    from ..look import loaded_model, report
    from ..look.scores import look

    pieces = model_files.Pieces.of(args)
    models = [
        loaded_model.load(model_files.resolve_model(path, pieces, translates=False))
        for path in args.checkpoint
    ]
    length = loaded_model.window_length(models, args.length)
    source = args.text.name if args.text else "random words (seed 1)"
    analyses = []
    for model in models:
        tokens = loaded_model.read_windows(model, length, args.text)
        text = f"{len(tokens)} windows of {length} tokens: {source}"
        analyses.append(report.Analysis(model, text, look(model, tokens)))
    with folder.create(args.out) as new:
        report.write(analyses, new)
    print(f"wrote {args.out / 'index.html'}")
