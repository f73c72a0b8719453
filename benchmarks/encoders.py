"""Encoders of every scheme against stock fairseq's RoBERTa: DIET's Table 1, on this machine.

    python -m benchmarks.encoders [--sizes base small] [--lengths 128 512] [--rounds 5]

A forward pass is one of the encoder without its head, in eval mode and without gradients. A
training step is one of fairseq's trainer: masked language modelling, dropout 0.1, Adam. The batches
are the same in every row: random words, nothing padded.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import torch
from fairseq import options, utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.trainer import Trainer

import diet_fairseq
from diet_fairseq.positions import SCHEMES

from .harness import Timing, in_turn, machine, save

STOCK = "stock"
#: layers, width, inner width, heads
SHAPES = {"tiny": (4, 128, 512, 4), "small": (4, 512, 2048, 8), "base": (12, 768, 3072, 12)}
#: what DIET's Table 1 compares, and T5's buckets
ROWS = ("shaw", "t5", "tupe_a", "tupe_r", "diet_rel", "diet_abs")


def trainer_of(scheme: str, size: str, length: int, more: list[str]) -> Trainer:
    layers, width, inner, heads = SHAPES[size]
    argv = f"""unused --task masked_lm --criterion masked_lm --cpu --optimizer adam --lr 0.0001
        --encoder-layers {layers} --encoder-embed-dim {width} --encoder-ffn-embed-dim {inner}
        --encoder-attention-heads {heads} --tokens-per-sample {length}
        --max-positions {length}""".split()
    arch = "roberta" if scheme == STOCK else f"roberta_{scheme}"
    given = [*argv, "--arch", arch, *(more if scheme != STOCK else [])]
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), given)
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


def batch_of(task: MaskedLMTask, sentences: int, length: int) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(1)
    shape, first = (sentences, length), task.dictionary.nspecial
    tokens = torch.randint(first, len(task.dictionary), shape, generator=draw)
    masked = torch.rand(shape, generator=draw) < 0.15
    lengths = torch.full((sentences,), length)
    return {
        "id": torch.arange(sentences),
        "net_input": {
            "src_tokens": tokens.masked_fill(masked, task.mask_idx),
            "src_lengths": lengths,
        },
        "target": tokens.masked_fill(~masked, task.dictionary.pad()),
        "nsentences": sentences,
        "ntokens": tokens.numel(),
    }


def measure(
    size: str, length: int, sentences: int, schemes: list[str], rounds: int, more: list[str]
) -> dict[str, list[Timing]]:
    trainers = {name: trainer_of(name, size, length, more) for name in [STOCK, *schemes]}
    batch = batch_of(trainers[STOCK].task, sentences, length)

    @torch.no_grad()
    def forward(trainer: Trainer) -> None:
        trainer.get_model().eval()(batch["net_input"]["src_tokens"], features_only=True)

    def step(trainer: Trainer) -> None:
        trainer.train_step([batch])

    return {
        what: in_turn({name: lambda t=t, run=run: run(t) for name, t in trainers.items()}, rounds)
        for what, run in (("inference", forward), ("training", step))
    }


def batched(schemes: list[str], number: int) -> list[list[str]]:
    return [schemes[first : first + number] for first in range(0, len(schemes), number)]


def line(shape: str, what: str, timings: list[Timing]) -> str:
    ratios = " | ".join(f"{timing.ratio:.2f}" for timing in timings[1:])
    return f"| {shape} | {what} | {timings[0].median:.2f} s | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="What is not known here is passed to our models: --attention-backend reference.",
        allow_abbrev=False,
    )
    parser.add_argument("--sizes", nargs="+", default=["small", "base"], choices=SHAPES)
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--batch", type=int, default=8, help="sentences (%(default)s)")
    parser.add_argument("--schemes", nargs="+", default=list(ROWS), choices=SCHEMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--together",
        type=int,
        default=3,
        help="schemes in memory beside stock; base at n = 512 takes some GB each (%(default)s)",
    )
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    args, more = parser.parse_known_args()

    names = " | ".join(args.schemes)
    print(f"| shape | pass | stock | {names} |\n|{' --- |' * (3 + len(args.schemes))}", flush=True)
    for size, length in product(args.sizes, args.lengths):
        found: dict[str, list[Timing]] = {}
        for schemes in batched(args.schemes, args.together):
            part = measure(size, length, args.batch, schemes, args.rounds, more)
            for what, timings in part.items():
                found[what] = found.get(what, timings[:1]) + timings[1:]
        for what, timings in found.items():
            print(line(f"{size}, n = {length}", what, timings), flush=True)
            if args.out:
                save(args.out / f"encoders-{size}-{length}-{what}.json", what, timings)
    print({**machine(), "diet_fairseq": diet_fairseq.__version__})


if __name__ == "__main__":
    main()
