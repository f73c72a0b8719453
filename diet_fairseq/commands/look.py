"""``diet-fairseq look``: a page about the positions that a trained model has learned."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..errors import UserError
from .arguments import add_model_files, silence_logs


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", nargs="+",
        help="one checkpoint, or two to compare; of ours or of stock fairseq")  # fmt: skip
    add("--out", type=Path, metavar="FOLDER", default=Path("look"),
        help="folder for index.html, its pictures and its tables (default: %(default)s)"
        )  # fmt: skip
    add("--text", type=Path, metavar="FILE",
        help="text to read, in the source language (default: random words)")  # fmt: skip
    add("--length", type=int, metavar="N",
        help="tokens of a window (default: as in training, at most 128, in translation 64)"
        )  # fmt: skip
    add("--epochs", action="store_true",
        help="add the scores of all checkpoints in CHECKPOINT's folder")  # fmt: skip
    add_model_files(parser)


def run(args: Namespace) -> None:
    from tqdm import tqdm

    from ..export import folder
    from ..inference import model_files

    if len(args.checkpoint) > 2:
        raise UserError(f"look shows one checkpoint or two, but there are {len(args.checkpoint)}")
    folder.check(args.out)
    # The drawing libraries are optional: a missing one is named before work begins.
    from ..analysis import loaded_model, report
    from ..analysis.scores import look

    silence_logs()
    pieces, reads_text = model_files.Pieces.of(args), args.text is not None
    source = args.text.name if reads_text else "random words (seed 1)"

    def load(path: Path) -> loaded_model.LoadedModel:
        return loaded_model.load_with_positions(path, pieces, reads_text)

    def analyse(model: loaded_model.LoadedModel) -> report.Analysis:
        tokens = loaded_model.read_windows(model, length, args.text)
        return report.Analysis(model, tokens, source, look(model, tokens))

    models = [load(path) for path in args.checkpoint]
    length = loaded_model.window_length(models, args.length)
    analyses = [analyse(model) for model in models]
    runs = []
    for model in models if args.epochs else ():
        paths = sorted(model.path.parent.glob("checkpoint*.pt"))
        bar = tqdm(paths, desc="reading", unit=" checkpoints", disable=None)
        run = {checkpoint.updates: analyse(checkpoint) for checkpoint in map(load, bar)}
        runs.append([run[updates] for updates in sorted(run)])
    with folder.create(args.out) as new:
        report.write(analyses, runs, new)
    print(f"wrote {args.out / 'index.html'}")
