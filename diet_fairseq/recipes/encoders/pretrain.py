"""``pretrain SCHEME``: shows the fairseq-train command, and runs it."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq.models import ARCH_CONFIG_REGISTRY

from ...config import SCHEMES, options_of
from ...errors import UserError
from ...models import diet_roberta
from ..common import programs
from ..common.options import at_least, by_name, given, run_name
from ..common.programs import STOCK
from .folder import add_folder
from .presets import PRESETS

SIZES = tuple(suffix[1:] for suffix in diet_roberta.SIZES if suffix)
#: an encoder, and the preset with its settings
ELECTRA = "electra"
ENCODERS = ("bert", "roberta", ELECTRA)
#: <s> and </s>, which a packed sample has besides its lines' subwords
SPECIAL = 2


@dataclass(frozen=True)
class Pretraining:
    """What is pretrained, and on which machine; None: as the preset has it, on all GPUs."""

    scheme: str
    preset: str
    encoder: str
    nsp: bool
    size: str | None
    updates: int | None
    batch: int | None
    length: int | None
    seed: int
    run: str | None
    gpus: int | None
    nodes: int
    per_gpu: int | None
    folder: Path


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("scheme", metavar="SCHEME", help=f"{', '.join([*SCHEMES, STOCK])}")
    parser.add_argument("--preset", choices=PRESETS, default="machine", help="(%(default)s)")
    parser.add_argument("--encoder", choices=ENCODERS, default="bert", help="(bert)")
    parser.add_argument("--nsp", action="store_true", help="predict the next sentence, as BERT")
    parser.add_argument("--size", choices=SIZES, help="(the preset's)")
    parser.add_argument("--updates", type=at_least(1), help="(the preset's)")
    parser.add_argument("--batch", type=at_least(1), help="samples in an update (the preset's)")
    parser.add_argument("--length", type=at_least(1), help="tokens in a sample (the preset's)")
    parser.add_argument("--seed", type=at_least(0), default=1, help="(%(default)s)")
    parser.add_argument(
        "--run", type=run_name, help="name of the run's folder (ENCODER_SCHEME-SIZE)"
    )
    parser.add_argument(
        "--gpus", type=at_least(0), help="of a node; 0: the CPU (all, else the CPU)"
    )
    parser.add_argument("--nodes", type=at_least(1), default=1, help="(%(default)s)")
    parser.add_argument(
        "--per-gpu",
        type=at_least(1),
        help="samples per step that fit into memory; gradients are accumulated",
    )
    parser.add_argument("--show", action="store_true", help="show the command only")
    add_folder(parser)


def architecture(encoder: str, scheme: str, size: str) -> list[str]:
    if scheme not in (STOCK, *SCHEMES):
        raise UserError(f"there is no scheme {scheme}: take one of {', '.join([*SCHEMES, STOCK])}")
    if encoder == ELECTRA and (scheme == STOCK or size == "large"):
        missing = STOCK if scheme == STOCK else size
        raise UserError(
            f"--encoder electra has no {missing}: take one of our schemes, and --size tiny, small "
            "or base"
        )
    if scheme != STOCK:
        return ["--arch", f"{encoder}_{scheme}_{size}"]
    if f"roberta_{size}" in ARCH_CONFIG_REGISTRY:
        return ["--arch", f"roberta_{size}"]
    return ["--arch", "roberta", *programs.shape_of(f"roberta_none_{size}")]


def objective(wanted: Pretraining, data: Path, length: int) -> list[str]:
    """Options for packed full sentences, across the ends of documents, or for pairs of texts."""
    if wanted.nsp:
        if wanted.encoder != "bert" or wanted.scheme == STOCK:
            raise UserError(
                "--nsp needs a BERT: take --encoder bert and one of our schemes, or leave it out"
            )
        return ["--nsp", "--task", "masked_lm_nsp", "--criterion", "masked_lm_nsp"]
    longest = programs.prepared(data.parent, longest_line=int)["longest_line"]
    if length < longest + SPECIAL:
        raise UserError(
            f"--length {length} is too short for lines of up to {longest} "
            f"subwords: prepare the text with --longest-line {length - SPECIAL}, or take "
            f"--length {longest + SPECIAL}"
        )
    packed = ["--task", "masked_lm", "--sample-break-mode", "complete"]
    if wanted.encoder != ELECTRA:
        return [*packed, "--criterion", "masked_lm"]
    # google-research/electra: 85% of the chosen tokens are masked, none replaced at random
    kept = ["--leave-unmasked-prob", "0.15", "--random-token-prob", "0"]
    return [*packed, "--criterion", "electra", *kept]


def blind(scheme: str, more: list[str]) -> list[str]:
    """The papers' form of a scheme's score, which has no gain and no local start."""
    options = options_of(SCHEMES[scheme]) if scheme != STOCK else {}
    if "position_start" in options:
        return ["--position-start", "blind"]
    segments = by_name(more).get("--segment-scheme") == "per-head"
    return ["--position-gain", "1"] if segments or options.get("position_gain", 1) != 1 else []


def tables(scheme: str, positions: int | None, length: int) -> list[str]:
    """How many positions the model has, if not those of a sample.

    Compressed keys are a share of a sample's in DIET (appendix A), so they keep its length.
    """
    if positions is None or (scheme != STOCK and SCHEMES[scheme].compressed):
        return []
    return ["--max-positions", str(max(positions, length))]


def run_folder(wanted: Pretraining, size: str) -> Path:
    model = wanted.scheme if wanted.scheme == STOCK else f"{wanted.encoder}_{wanted.scheme}"
    return wanted.folder / "runs" / (wanted.run or f"{model}-{size}{'-nsp' * wanted.nsp}")


def command(wanted: Pretraining, more: list[str]) -> list[str]:
    """The fairseq-train command; ``more`` is last and wins."""
    if wanted.preset == ELECTRA != wanted.encoder:
        raise UserError(
            f"--preset {ELECTRA} has the settings of such an encoder, but --encoder is "
            f"{wanted.encoder}: add --encoder {ELECTRA}, or take another --preset"
        )
    preset, data = PRESETS[wanted.preset], programs.data_of(wanted.folder)
    size, length = wanted.size or preset.size, wanted.length or preset.length
    updates, batch = wanted.updates or preset.updates, wanted.batch or preset.batch
    run = run_folder(wanted, size)
    gpus = programs.devices(wanted.gpus)
    if wanted.nodes > 1 and not gpus:
        raise UserError(
            f"--nodes {wanted.nodes}: several nodes train with GPUs only, and none is used here: "
            "leave it out, or run this on a node that has some"
        )
    processes = max(1, gpus * wanted.nodes)
    gather = -(-batch // ((wanted.per_gpu or preset.per_gpu) * processes))
    # Resuming on several processes fails without the second flag.
    parallel = ["--distributed-world-size", processes, "--load-checkpoint-on-all-dp-ranks"]
    options = [
        *["--user-dir", programs.PLUGIN, *architecture(wanted.encoder, wanted.scheme, size)],
        *(blind(wanted.scheme, more) if preset.blind else []),
        *objective(wanted, data, length),
        *["--tokens-per-sample", length, *tables(wanted.scheme, preset.positions, length)],
        *["--optimizer", *preset.optimizer, "--weight-decay", 0.01],
        *["--clip-norm", preset.clip_norm, "--lr", preset.peak_rate],
        *["--lr-scheduler", "linear_ratio", "--warmup-ratio", preset.warmup],
        *["--batch-size", max(1, batch // (gather * processes)), "--update-freq", gather],
        *["--max-update", updates, "--seed", wanted.seed, *(parallel if gpus else ["--cpu"])],
        *["--save-dir", run, "--no-epoch-checkpoints"],
        *["--save-interval-updates", min(preset.save_every, updates)],
        *["--keep-interval-updates", preset.keep],
        *["--validate-interval-updates", min(preset.validate_every, updates)],
        *["--log-format", "simple", "--log-interval", 100, "--log-file", run / "train.log"],
    ]
    return [*programs.python("fairseq_cli.train", data, *options), *more]


def pretrain(args: Namespace, more: list[str]) -> None:
    wanted = given(Pretraining, args)
    preset = PRESETS[wanted.preset]
    batch = wanted.batch or preset.batch
    one_device = replace(wanted, gpus=0, nodes=1, per_gpu=batch, updates=preset.updates)
    run = run_folder(wanted, wanted.size or preset.size)
    programs.train(command(wanted, more), command(one_device, more), run, args.show)
