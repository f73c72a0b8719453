"""Optimizers on three small parameters, and the parameters after some updates."""

import io
from typing import Any

import pytest
import torch
from fairseq.optim import FairseqOptimizer

from diet_fairseq.optim.fused_adamw import FusedAdamW, FusedAdamWConfig
from diet_fairseq.optim.lamb_torch import LambTorch, LambTorchConfig
from diet_fairseq.optim.linear_ratio import LinearRatio, LinearRatioConfig

SHAPES = [(16, 8), (8,), (4, 3, 5)]
STEPS = 60
HYPER = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01}
#: tolerance after sixty updates that are computed in another order
ROUNDING = 1e-6


def parameters(size=0.1, device="cpu"):
    draw = torch.Generator().manual_seed(1)
    values = [size * torch.randn(shape, generator=draw) for shape in SHAPES]
    return [torch.nn.Parameter(value.to(device)) for value in values]


def always(step, number):
    return True


def sometimes(step, number):
    """LayerDrop leaves out a layer's parameters at times; here all but the first are."""
    return (step + number) % (number + 2) > 0 or number == 0


def give_gradients(params, step, active=always):
    """Gradients as small as those of a large model: 1e-5, with eps 1e-6 beside them."""
    draw = torch.Generator().manual_seed(step)
    for number, p in enumerate(params):
        gradient = 1e-5 * torch.randn(p.shape, generator=draw)
        p.grad = gradient.to(p) if active(step, number) else None


def trajectory(optimizer, params, active=always, steps=range(STEPS)):
    """(numbers,): the parameters after these updates."""
    for step in steps:
        give_gradients(params, step, active)
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * (1 - step / STEPS)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in params])


def moved(make, active=always, **options):
    params = parameters(**options)
    return trajectory(make(params, **HYPER), params, active)


def difference(a, b):
    return float((a - b).abs().max())


def build(kind, params, **options):
    """The optimizer as fairseq builds it."""
    config = FusedAdamWConfig if kind is FusedAdamW else LambTorchConfig
    return kind(config(**({"lr": [0.01]} | options)), params)


def fused_adamw(params):
    return build(FusedAdamW, params, adam_betas="(0.9, 0.98)", adam_eps=1e-6, weight_decay=0.01)


def lamb_torch(params):
    return build(LambTorch, params, lamb_betas="(0.9, 0.98)", weight_decay=0.01)


EACH = pytest.mark.parametrize("make", [fused_adamw, lamb_torch])
GRADIENTS = pytest.mark.parametrize("active", [always, sometimes])


def through_a_file(state):
    """The state after it was saved and loaded; nothing in it needs to be trusted."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class NoOptimizer(FairseqOptimizer):
    """An optimizer with nothing but a learning rate."""

    def __init__(self):
        self._optimizer = torch.optim.SGD(parameters(), lr=1.0)


def schedule(**options):
    config: dict[str, Any] = {"lr": [1.0], "max_update": 0, "max_epoch": 0, "update_freq": [1],
             "skip_remainder_batch": False, "warmup_ratio": 0.25} | options  # fmt: skip
    return LinearRatio(LinearRatioConfig(**config), NoOptimizer())
