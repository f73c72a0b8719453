"""The cost of ELECTRA's objective: its training step beside masked language modelling's.

    python -m benchmarks.electra [--sizes tiny small] [--scheme tupe_r] [--length 128] [--rounds 5]

Both steps train the same encoder with fairseq's trainer, on the same batch of random words without
padding. The generator's share is the share of its forward and backward pass in ELECTRA's step.
"""

import argparse
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.trainer import Trainer

from diet_fairseq.positions import SCHEMES

from .encoders import batch_of, trainer_of
from .harness import Timing, in_turn, machine, save

MASKED_LM, ELECTRA, GENERATOR = "masked LM", "ELECTRA", "its generator"
SIZES = ("tiny", "small", "base")


def flags_of(electra: str) -> list[str]:
    """The discriminator's shape, for any encoder of ours."""
    args = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[electra](args)
    names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    shape = {f"encoder_{name}": getattr(args, f"encoder_{name}") for name in names}
    shape["embedding_size"] = getattr(args, "embedding_size", None) or args.encoder_embed_dim
    return [f"--{name.replace('_', '-')}={value}" for name, value in shape.items()]


def trainers(scheme: str, size: str, length: int) -> dict[str, Trainer]:
    """The masked language model and the ELECTRA, whose discriminator is the same encoder."""
    electra = f"electra_{scheme}_{size}"
    kinds = {MASKED_LM: (f"bert_{scheme}", "masked_lm"), ELECTRA: (electra, "electra")}
    return {
        name: trainer_of(
            scheme,
            "tiny",  # replaced by the shape that follows
            length,
            ["--arch", arch, "--criterion", criterion, *flags_of(electra)],
        )
        for name, (arch, criterion) in kinds.items()
    }


def measure(scheme: str, size: str, length: int, sentences: int, rounds: int) -> list[Timing]:
    steps = trainers(scheme, size, length)
    task, model = steps[ELECTRA].task, steps[ELECTRA].model
    batch = batch_of(task, torch.full((sentences,), length))
    tokens, targets = batch["net_input"]["src_tokens"], batch["target"]
    is_masked = targets.ne(task.dictionary.pad())

    def generate() -> None:
        logits = model.generator(tokens, is_masked, None)  # (M, V)
        F.cross_entropy(logits, targets[is_masked], reduction="sum").backward()
        model.zero_grad()

    candidates = {name: partial(trainer.train_step, [batch]) for name, trainer in steps.items()}
    return in_turn({**candidates, GENERATOR: generate}, rounds)


def spread(values: list[float], digits: int = 2) -> str:
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def line(shape: str, timings: list[Timing]) -> str:
    """A row: the times of both steps, their ratio, and the generator's share of ELECTRA's step."""
    masked, electra, generator = timings
    longer = [1 / ratio for ratio in electra.ratios]
    share = [part / step for part, step in zip(generator.seconds, electra.seconds, strict=True)]
    cells = [f"{masked.median:.2f} s", f"{electra.median:.2f} s", spread(longer), spread(share)]
    return f"| {shape} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["tiny", "small"], choices=SIZES)
    schemes = [name for name, scheme in SCHEMES.items() if not scheme.compressed]
    parser.add_argument("--scheme", default="tupe_r", choices=schemes)
    parser.add_argument("--length", type=int, default=128, help="tokens (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="sentences (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    args = parser.parse_args()

    print("| shape | masked LM | ELECTRA | times as long | the generator's share |")
    print(f"|{' --- |' * 5}", flush=True)
    for size in args.sizes:
        timings = measure(args.scheme, size, args.length, args.batch, args.rounds)
        print(line(f"{size}, n = {args.length}", timings), flush=True)
        if args.out:
            save(args.out / f"electra-{size}-{args.length}.json", "training", timings)
    print(machine())


if __name__ == "__main__":
    main()
