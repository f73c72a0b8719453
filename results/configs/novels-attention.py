"""A run of results/pretraining/novels-attention.csv: gradients and attention in training.

Trains as novels-peak.sh does, in the folder of its data-bin, in float32 on one core that ran other
programs, too, and appends rows to novels-attention.csv:

    python novels-attention.py NAME SCHEME SEED ORDER [options of fairseq-train]

SEED draws the initial values, ORDER the order of the samples and their masks.

loss        training loss, nats: the mean since the row before, as of the next three columns
norm        norm of all gradients, before they are clipped to 1
positions   norm of the gradients of the position tables
clip        the factor that clipping multiplies the gradients by
entropy     entropy of attention, nats: the mean over layers, heads and queries of 8 held-out
            samples
first       attention to a head's first offset (`first_offsets`): the mean over layers and heads
local       heads, of 16, that give their first offset more than half of their attention
"""

import csv
import math
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq import utils
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.trainer import Trainer
from fairseq_cli import train

import diet_fairseq
from diet_fairseq.positions.base import AttentionShape, Limit
from diet_fairseq.positions.gain import first_offsets
from diet_fairseq.transformer import attention

ROWS = (0, 10, 20, 40, *range(50, 401, 50))
OPTIONS = {
    "--task": "masked_lm", "--criterion": "masked_lm", "--sample-break-mode": "complete",
    "--tokens-per-sample": "128", "--max-positions": "512", "--batch-size": "32",
    "--optimizer": "fused_adamw", "--adam-betas": "(0.9, 0.98)", "--adam-eps": "1e-6",
    "--weight-decay": "0.01", "--clip-norm": "1.0", "--lr": "0.003", "--max-update": "400",
    "--lr-scheduler": "linear_ratio", "--warmup-ratio": "0.1", "--num-workers": "0",
    "--validate-interval-updates": "100", "--max-valid-steps": "30", "--log-format": "json",
}  # fmt: skip
build_model, clip_grad_norm, train_step = (
    MaskedLMTask.build_model,
    Trainer.clip_grad_norm,
    Trainer.train_step,
)
steps: list[tuple[float, float, float, float]] = []  # loss, norm, positions, clip


@contextmanager
def recorded_weights():
    """The list of the weights of each attention called within, (B, H, T, T)."""
    weights, attend = [], attention.attend

    def recording(*args, **options):
        out, last = attend(*args, **options | {"need_weights": True})
        weights.append(last)
        return out, last

    attention.attend = recording
    try:
        yield weights
    finally:
        attention.attend = attend


@torch.no_grad()
def measure(trainer):
    """Entropy, attention to the first offset, and the number of local heads."""
    data = trainer.task.dataset("valid")
    batch = data.collater([data[number] for number in range(40, 48)])["net_input"]
    trainer.model.eval()
    with recorded_weights() as weights:
        trainer.model(**batch)
    trainer.model.train()
    real = batch["src_tokens"].ne(trainer.task.source_dictionary.pad())  # (B, T)
    weights = torch.stack(weights)  # (L, B, H, T, T)
    entropy = torch.special.entr(weights).sum(-1)  # (L, B, H, T)
    limit = Limit(512, "--max-positions")
    shape = AttentionShape(weights.size(2), 32, 128, limit, limit)
    shares = []
    for head, offset in enumerate(first_offsets(shape)):
        pairs = real.unsqueeze(2) & real.unsqueeze(1)  # (B, T, T)
        is_pair = pairs.diagonal(int(offset), -2, -1)
        line = weights[:, :, head].diagonal(int(offset), -2, -1)  # (L, B, T - |offset|)
        shares.append((line * is_pair).sum((1, 2)) / is_pair.sum())
    first = torch.stack(shares)  # (H, L)
    return {
        "entropy": f"{(entropy.mean((0, 2)) * real).sum() / real.sum():.3f}",
        "first": f"{first.mean():.3f}",
        "local": int((first > 0.5).sum()),
    }


def write_row(trainer):
    row = {"run": run, "update": trainer.get_num_updates()}
    if steps:
        means = torch.tensor(steps).mean(0).tolist()
        names = ("loss", "norm", "positions", "clip")
        row |= {name: f"{mean:.4f}" for name, mean in zip(names, means, strict=True)}
        steps.clear()
    state = torch.get_rng_state()
    row |= measure(trainer)
    torch.set_rng_state(state)
    path = Path("novels-attention.csv")
    header = ["run", "update", "loss", "norm", "positions", "clip", "entropy", "first", "local"]
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, header, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def build_seeded(self, *args, **options):
    torch.manual_seed(int(seed))
    model = build_model(self, *args, **options)
    utils.set_torch_seed(int(order))
    return model


def clip_recorded(self, limit):
    parameters = self.model.named_parameters()
    tables = [parameter.grad.norm() for name, parameter in parameters if ".positions." in name]
    self.tables = float(torch.stack(tables).norm())
    self.norm = clip_grad_norm(self, limit)
    return self.norm


def train_recorded(self, samples, raise_oom=False):
    if self.get_num_updates() == 0 and not steps:
        write_row(self)
    log = train_step(self, samples, raise_oom)
    loss = float(log["loss"]) * math.log(2)  # fairseq logs bits
    steps.append((loss, float(self.norm), self.tables, min(1.0, 1 / float(self.norm))))
    if self.get_num_updates() in ROWS:
        write_row(self)
    return log


run, scheme, seed, order, *options = sys.argv[1:]
MaskedLMTask.build_model = build_seeded
Trainer.clip_grad_norm = clip_recorded
Trainer.train_step = train_recorded
defaults = [word for option in OPTIONS.items() if option[0] not in options for word in option]
plugin = str(Path(diet_fairseq.__file__).parent)
sys.argv = ["fairseq-train", "data-bin", "--user-dir", plugin, "--cpu", "--no-save"]
sys.argv += ["--arch", f"roberta_{scheme}_tiny", "--seed", order, *defaults, *options]
train.cli_main()
