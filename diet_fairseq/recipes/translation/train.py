"""``train SCHEME SRC TGT``: shows the fairseq-train command, and runs it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...config import TRANSLATION
from ...errors import UserError
from ..common import programs
from ..common.options import at_least, given, run_name
from ..common.programs import STOCK
from .chosen import add_corpus, add_folder, folder_of
from .corpora import CORPORA
from .corpora.corpus import Corpus
from .described import describe

SIZES = ("base", "tiny", "iwslt_de_en", "wmt_en_de", "wmt_en_de_big")


@dataclass(frozen=True)
class Run:
    """What names a run: to train it, and to evaluate it."""

    corpus: str
    scheme: str
    source: str
    target: str
    size: str
    run: str | None
    gpus: int | None  # None: all
    folder: Path | None  # None: the corpus's

    @property
    def data(self) -> Path:
        """Where everything of the pair of languages is kept."""
        return folder_of(self.corpus, self.source, self.target, self.folder)

    @property
    def place(self) -> Path:
        """The run's own folder."""
        name = self.run or f"{self.scheme}-{self.size}-{self.source}-{self.target}"
        return self.data / "runs" / name


@dataclass(frozen=True)
class Training(Run):
    """A run, and how long and on what it is trained."""

    updates: int
    seed: int
    tokens_per_gpu: int


def add_run_arguments(parser: ArgumentParser, corpus: Corpus) -> None:
    """What names a run, to train it and to evaluate it."""
    parser.add_argument("scheme", metavar="SCHEME", help=f"{', '.join([*TRANSLATION, STOCK])}")
    parser.add_argument("source", metavar="SRC")
    parser.add_argument("target", metavar="TGT")
    parser.add_argument("--size", choices=SIZES, default=corpus.recipe.size, help="(%(default)s)")
    parser.add_argument(
        "--run", type=run_name, help="name of the run's folder (SCHEME-SIZE-SRC-TGT)"
    )
    parser.add_argument("--gpus", type=at_least(0), help="how many; 0: the CPU (all, else the CPU)")
    add_folder(parser, corpus)


def add_arguments(parser: ArgumentParser, words: Sequence[str] | None) -> None:
    corpus = add_corpus(parser, words)
    recipe = corpus.recipe
    add_run_arguments(parser, corpus)
    parser.add_argument("--updates", type=at_least(1), default=recipe.updates, help="(%(default)s)")
    parser.add_argument("--seed", type=at_least(0), default=1, help="(%(default)s)")
    parser.add_argument(
        "--tokens-per-gpu",
        type=at_least(1),
        default=5000,
        help=f"tokens per step that fit into memory, accumulated to {recipe.batch:,} (%(default)s)",
    )
    parser.add_argument("--show", action="store_true", help="show the command only")


def architecture(scheme: str, size: str) -> list[str]:
    if scheme not in (STOCK, *TRANSLATION):
        raise UserError(
            f"there is no scheme {scheme}: take one of {', '.join([*TRANSLATION, STOCK])}"
        )
    if scheme == STOCK and size == "tiny":
        return ["--arch", "transformer", *programs.shape_of("transformer_none_tiny")]
    name = "transformer" if scheme == STOCK else f"transformer_{scheme}"
    return ["--arch", name if size == "base" else f"{name}_{size}"]


def command(wanted: Training, more: list[str]) -> list[str]:
    """The fairseq-train command; ``more`` is last and wins."""
    recipe = CORPORA[wanted.corpus].recipe
    gpus = programs.devices(wanted.gpus)
    gather = -(-recipe.batch // (wanted.tokens_per_gpu * max(1, gpus)))
    every = min(recipe.save_every, max(1, wanted.updates // recipe.keep))  # enough to average
    # Resuming on several processes fails without the second flag.
    parallel = ["--distributed-world-size", gpus, "--load-checkpoint-on-all-dp-ranks"]
    where = parallel if gpus else ["--cpu"]
    options = [
        *["--user-dir", programs.PLUGIN, *architecture(wanted.scheme, wanted.size)],
        *["--source-lang", wanted.source, "--target-lang", wanted.target],
        "--share-all-embeddings",  # Vaswani 3.4
        *["--optimizer", "fused_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-9],  # 5.3
        *["--lr", recipe.peak_rate, "--lr-scheduler", "inverse_sqrt"],
        *["--warmup-updates", recipe.warmup],
        *["--criterion", "fused_label_smoothed_cross_entropy", "--label-smoothing", 0.1],  # 5.4
        *([] if recipe.dropout is None else ["--dropout", recipe.dropout]),
        *["--max-tokens", recipe.batch // (gather * max(1, gpus)), "--update-freq", gather],
        *["--max-update", wanted.updates, "--seed", wanted.seed, *where],
        *["--save-dir", wanted.place, "--save-interval-updates", every],
        *["--keep-interval-updates", recipe.keep, "--no-epoch-checkpoints"],
        *["--log-format", "simple", "--log-interval", 100],
        *["--log-file", wanted.place / "train.log"],
        "--skip-invalid-size-inputs-valid-test",
    ]
    return [
        *programs.python("fairseq_cli.train", programs.data_of(wanted.data), *options),
        *more,
    ]


def train(args: Namespace, more: list[str]) -> None:
    wanted = given(Training, args)
    recipe = CORPORA[wanted.corpus].recipe
    one_device = replace(wanted, gpus=0, tokens_per_gpu=recipe.batch, updates=recipe.updates)
    last, search = wanted.place / "checkpoint_last.pt", CORPORA[wanted.corpus].search
    programs.train(
        command(wanted, more),
        command(one_device, more),
        wanted.place,
        args.show,
        lambda: describe(wanted.place, wanted.data, wanted.source, wanted.target, search, last),
    )
