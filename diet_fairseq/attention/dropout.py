"""Faster dropout on a CPU.

On a CPU PyTorch draws one random number per element, which takes more time than the matrix products
of a layer. Here one random number of 64 bits decides over four elements, with 16 bits each.
"""

from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: number of values of 16 bits; a probability is rounded to a multiple of 1 / LEVELS
LEVELS = 2**16
#: number of elements that share one random number
PER_DRAW = 4
#: number of weights that are dropped at a time, so that their random numbers stay in the cache
CHUNK = 2**18


def dropout(x: Tensor, p: float) -> Tensor:
    """`torch.nn.functional.dropout` in training: zeros with probability p, the rest / (1 - p).

    On a CPU p is rounded to a multiple of 2^-16, also in the factor 1 / (1 - p), so that the mean
    of the result is x. With the same seed, `F.dropout` drops other elements.
    """
    dropped_levels = round(p * LEVELS)
    if x.device.type != "cpu" or not 0 < dropped_levels < LEVELS:
        return F.dropout(x, p)
    return x * draw_factors(x, dropped_levels)


def draw_factors(x: Tensor, dropped_levels: int) -> Tensor:
    """The factors of x, in its shape and dtype: 0 for dropped_levels / LEVELS of the elements."""
    draws = -(-x.numel() // PER_DRAW)
    numbers = torch.empty(draws, dtype=torch.int64).random_(-(2**63), None)
    numbers = numbers.view(torch.int16)[: x.numel()].view(x.shape)  # -2^15 ... 2^15 - 1
    factors = numbers.ge_(dropped_levels - LEVELS // 2).to(x.dtype)  # 1 or 0
    return factors.mul_(LEVELS / (LEVELS - dropped_levels))


def softmax_dropout(score: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """softmax over the last dimension, and `dropout` of it with probability p.

    Args:
        score: (..., Tk)
        p: the probability that a weight is dropped

    Returns:
        the weights after dropout and the weights before it, in the shape and dtype of ``score``
    """
    dropped_levels = round(p * LEVELS)
    # a compiler fuses the operations itself
    is_plain = score.device.type != "cpu" or torch.compiler.is_compiling()
    if is_plain or score.dtype != torch.float32 or not 0 < dropped_levels < LEVELS:
        # float32, because half precision has too few digits for a sum over many keys
        weights = F.softmax(score, dim=-1, dtype=torch.float32).to(score.dtype)
        return dropout(weights, p) if p else weights, weights
    dropped, weights = _SoftmaxDropout.apply(score, dropped_levels)
    return dropped, weights


class _SoftmaxDropout(torch.autograd.Function):
    """`softmax_dropout` without a mask for the backward pass.

    With the weights w, their values d after dropout, and the gradient g of d, the gradient of the
    score is g d - w sum(g d).
    """

    @staticmethod
    def forward(ctx: Any, score: Tensor, dropped_levels: int) -> tuple[Tensor, Tensor]:
        weights = F.softmax(score, dim=-1)
        dropped = torch.empty_like(weights)
        flat = zip(weights.view(-1).split(CHUNK), dropped.view(-1).split(CHUNK), strict=True)
        for weights_part, dropped_part in flat:
            torch.mul(weights_part, draw_factors(weights_part, dropped_levels), out=dropped_part)
        ctx.save_for_backward(dropped, weights)
        ctx.set_materialize_grads(False)
        return dropped, weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        results = ctx.saved_tensors
        products = [g * r for g, r in zip(gradients, results, strict=True) if g is not None]
        if not products:
            return None, None
        product = reduce(torch.add, products)
        return product.addcmul_(results[1], product.sum(-1, keepdim=True), value=-1), None


class Dropout(nn.Dropout):
    """`dropout` as a module, active at inference if ``is_retained``."""

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.is_retained = False

    @property
    def active_p(self) -> float:
        """The probability that an element is dropped now."""
        return self.p if self.training or self.is_retained else 0.0

    def forward(self, x: Tensor) -> Tensor:
        p = self.active_p
        return dropout(x, p) if p > 0 else x
