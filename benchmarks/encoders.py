"""Encoders of every scheme against stock fairseq's RoBERTa: DIET's Table 1, on this machine.

    python -m benchmarks.encoders [--sizes base small] [--lengths 128 512] [--rounds 5]

A forward pass runs the encoder without its head, in eval mode and without gradients. A training
step is a step of fairseq's trainer: masked language modelling, dropout 0.1, Adam. All rows have the
same batches of random words, without padding. With ``--mixed TEXT`` the sentences have the lengths
of lines from all parts of a text.
"""

import argparse
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from fairseq import options, utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.trainer import Trainer
from torch import Tensor

from diet_fairseq.positions import SCHEMES

from .harness import Timing, in_turn, machine, save

STOCK = "stock"


def shape_of(size: str) -> tuple[int, int, int, int]:
    """Layers, width, inner width and heads of an encoder of ours."""
    args = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[f"roberta_none_{size}"](args)
    return (
        args.encoder_layers,
        args.encoder_embed_dim,
        args.encoder_ffn_embed_dim,
        args.encoder_attention_heads,
    )


SHAPES = {size: shape_of(size) for size in ("tiny", "small", "base")}
#: what DIET's Table 1 compares, and T5's buckets
ROWS = ("shaw", "t5", "tupe_a", "tupe_r", "diet_rel", "diet_abs")


def trainer_of(
    scheme: str, size: str, length: int, model_options: list[str], where: str = "--cpu"
) -> Trainer:
    layers, width, inner, heads = SHAPES[size]
    argv = f"""unused --task masked_lm --criterion masked_lm {where} --optimizer adam --lr 0.0001
        --encoder-layers {layers} --encoder-embed-dim {width} --encoder-ffn-embed-dim {inner}
        --encoder-attention-heads {heads} --tokens-per-sample {length}
        --max-positions {length}""".split()
    arch = "roberta" if scheme == STOCK else f"roberta_{scheme}"
    argv += ["--arch", arch, *(model_options if scheme != STOCK else [])]
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), argv)
    )
    utils.set_torch_seed(1)
    task = MaskedLMTask(cfg.task, words(30_000))
    model = task.build_model(cfg.model)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    trainer.begin_epoch(1)
    return trainer


def words(size: int) -> Dictionary:
    dictionary = Dictionary()
    for number in range(size):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def batch_of(task: MaskedLMTask, lengths: Tensor) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(1)
    shape, first = (len(lengths), int(lengths.max())), task.dictionary.nspecial
    tokens = torch.randint(first, len(task.dictionary), shape, generator=draw)
    real = torch.arange(shape[1]) < lengths.unsqueeze(1)
    tokens = tokens.masked_fill(~real, task.dictionary.pad())
    masked = (torch.rand(shape, generator=draw) < 0.15) & real
    return {
        "id": torch.arange(len(lengths)),
        "net_input": {
            "src_tokens": tokens.masked_fill(masked, task.mask_idx),
            "src_lengths": lengths,
        },
        "target": tokens.masked_fill(~masked, task.dictionary.pad()),
        "nsentences": len(lengths),
        "ntokens": int(lengths.sum()),
    }


def lengths_of(text: Path | None, sentences: int, length: int) -> Tensor:
    """The lengths of sentences: ``length``, or the numbers of words in lines of a text."""
    if text is None:
        return torch.full((sentences,), length)
    words = [len(line.split()) for line in text.read_text(encoding="utf-8").split("\n")]
    lengths = [min(number, length) for number in words if number]
    return torch.tensor(lengths[:: len(lengths) // sentences][:sentences])


def measure(
    size: str,
    length: int,
    lengths: Tensor,
    schemes: list[str],
    rounds: int,
    model_options: list[str],
) -> dict[str, list[Timing]]:
    trainers = {name: trainer_of(name, size, length, model_options) for name in [STOCK, *schemes]}
    batch = batch_of(trainers[STOCK].task, lengths)

    @torch.no_grad()
    def forward(trainer: Trainer) -> None:
        trainer.get_model().eval()(batch["net_input"]["src_tokens"], features_only=True)

    def step(trainer: Trainer) -> None:
        trainer.train_step([batch])

    return {
        what: in_turn({name: partial(run, t) for name, t in trainers.items()}, rounds)
        for what, run in (("inference", forward), ("training", step))
    }


def line(shape: str, what: str, timings: list[Timing]) -> str:
    ratios = " | ".join(f"{timing.ratio:.2f}" for timing in timings[1:])
    return f"| {shape} | {what} | {timings[0].median:.2f} s | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="Unknown options are passed to our models: --attention-backend reference.",
        allow_abbrev=False,
    )
    parser.add_argument("--sizes", nargs="+", default=["small", "base"], choices=SHAPES)
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--batch", type=int, default=8, help="sentences (%(default)s)")
    parser.add_argument("--schemes", nargs="+", default=list(ROWS), choices=SCHEMES)
    parser.add_argument("--mixed", type=Path, metavar="TEXT", help="lines as long as this text's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--together",
        type=int,
        default=3,
        help="schemes in memory beside stock; base at n = 512 takes some GB each (%(default)s)",
    )
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    args, model_options = parser.parse_known_args()

    names = " | ".join(args.schemes)
    print(f"| shape | pass | stock | {names} |\n|{' --- |' * (3 + len(args.schemes))}", flush=True)
    for size, length in product(args.sizes, args.lengths):
        lengths = lengths_of(args.mixed, args.batch, length)
        shape = f"{size}, n = {length}"
        if args.mixed:
            share = 1 - float(lengths.float().mean() / lengths.max())
            shape = f"{size}, {lengths.min()} to {lengths.max()} tokens, {share:.0%} padding"
        rows: dict[str, list[Timing]] = {}
        for first in range(0, len(args.schemes), args.together):
            schemes = args.schemes[first : first + args.together]
            part = measure(size, length, lengths, schemes, args.rounds, model_options)
            for what, timings in part.items():
                rows[what] = rows.get(what, timings[:1]) + timings[1:]
        for what, timings in rows.items():
            print(line(shape, what, timings), flush=True)
            if args.out:
                kind = "mixed" if args.mixed else "full"
                save(args.out / f"encoders-{size}-{length}-{kind}-{what}.json", what, timings)
    print(machine())


if __name__ == "__main__":
    main()
