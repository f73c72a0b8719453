"""``train SCHEME SRC TGT``: shows the fairseq-train command, and becomes it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from ...config import TRANSLATION
from ...errors import UserError
from ..common import programs
from ..common.programs import STOCK
from .chosen import add_corpus, add_folder, corpus_of, folder_of
from .corpora.corpus import Corpus, Recipe

#: fairseq has no architecture of this size; transformer_<scheme>_tiny is ours
STOCK_TINY = {"layers": 4, "embed-dim": 128, "ffn-embed-dim": 256, "attention-heads": 4}
SIZES = ("base", "tiny", "iwslt_de_en", "wmt_en_de", "wmt_en_de_big")


def add_run_arguments(parser: ArgumentParser, corpus: Corpus) -> None:
    """What names a run, to train it and to evaluate it."""
    parser.add_argument("scheme", metavar="SCHEME", help=f"{', '.join([*TRANSLATION, STOCK])}")
    parser.add_argument("source", metavar="SRC")
    parser.add_argument("target", metavar="TGT")
    parser.add_argument("--size", choices=SIZES, default=corpus.recipe.size, help="(%(default)s)")
    parser.add_argument("--run", help="name of the run's folder (SCHEME-SIZE-SRC-TGT)")
    parser.add_argument("--gpus", type=int, help="how many; 0: the CPU (all, else the CPU)")
    add_folder(parser, corpus)


def add_arguments(parser: ArgumentParser, words: Sequence[str] | None) -> None:
    corpus = add_corpus(parser, words)
    recipe = corpus.recipe
    add_run_arguments(parser, corpus)
    parser.add_argument("--updates", type=int, default=recipe.updates, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    parser.add_argument(
        "--tokens-per-gpu",
        type=int,
        default=5000,
        help=f"what fits into memory; a batch of {recipe.batch:,} is gathered (%(default)s)",
    )
    parser.add_argument("--show", action="store_true", help="show the command only")


def run_folder(args: Namespace) -> Path:
    name = args.run or f"{args.scheme}-{args.size}-{args.source}-{args.target}"
    return folder_of(args) / "runs" / name


def architecture(scheme: str, size: str) -> list[str]:
    if scheme not in (STOCK, *TRANSLATION):
        raise UserError(f"no scheme {scheme}: take one of {', '.join([*TRANSLATION, STOCK])}")
    if scheme == STOCK and size == "tiny":
        shape = [
            (f"--{side}-{name}", str(value))
            for side in ("encoder", "decoder")
            for name, value in STOCK_TINY.items()
        ]
        return ["--arch", "transformer", *chain.from_iterable(shape), "--dropout", "0.3"]
    name = "transformer" if scheme == STOCK else f"transformer_{scheme}"
    return ["--arch", name if size == "base" else f"{name}_{size}"]


def command(recipe: Recipe, args: Namespace, more: list[str]) -> list[str]:
    """The fairseq-train command; ``more`` stands last and wins."""
    gpus = programs.devices(args.gpus)
    gather = -(-recipe.batch // (args.tokens_per_gpu * max(1, gpus)))
    every = min(recipe.save_every, max(1, args.updates // recipe.keep))  # enough to average
    where = ["--distributed-world-size", gpus] if gpus else ["--cpu"]
    options = [
        *["--user-dir", programs.PLUGIN, *architecture(args.scheme, args.size)],
        *["--source-lang", args.source, "--target-lang", args.target],
        "--share-all-embeddings",  # Vaswani 3.4
        *["--optimizer", "fused_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-9],  # 5.3
        *["--lr", recipe.peak_rate, "--lr-scheduler", "inverse_sqrt"],
        *["--warmup-updates", recipe.warmup],
        *["--criterion", "fused_label_smoothed_cross_entropy", "--label-smoothing", 0.1],  # 5.4
        *([] if recipe.dropout is None else ["--dropout", recipe.dropout]),
        *["--max-tokens", recipe.batch // (gather * max(1, gpus)), "--update-freq", gather],
        *["--max-update", args.updates, "--seed", args.seed, *where],
        *["--save-dir", run_folder(args), "--save-interval-updates", every],
        *["--keep-interval-updates", recipe.keep, "--no-epoch-checkpoints"],
        *["--log-format", "simple", "--log-interval", 100],
        *["--log-file", run_folder(args) / "train.log"],
        "--skip-invalid-size-inputs-valid-test",
    ]
    return [
        *programs.python("fairseq_cli.train", programs.data_of(folder_of(args)), *options),
        *more,
    ]


def train(args: Namespace, more: list[str]) -> None:
    recipe = corpus_of(args).recipe
    one_device = {"gpus": 0, "tokens_per_gpu": recipe.batch, "updates": recipe.updates}
    same = command(recipe, Namespace(**vars(args) | one_device), more)
    programs.train(command(recipe, args, more), same, run_folder(args), args.show)
