"""Faster dropout on a CPU.

On a CPU PyTorch draws one random number per element, which takes more time than the matrix products
of a layer. Here one random number of 64 bits decides over four elements, with 16 bits each.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: number of values of 16 bits; a probability is rounded to a multiple of 1 / PARTS
PARTS = 2**16
#: number of elements that share one random number
PER_DRAW = 4


def dropout(x: Tensor, p: float) -> Tensor:
    """`torch.nn.functional.dropout` in training: zeros with probability p, the rest / (1 - p).

    On a CPU p is rounded to a multiple of 2^-16, also in the factor 1 / (1 - p), so that the mean
    of the result is x. With the same seed, `F.dropout` drops other elements.
    """
    parts = round(p * PARTS)
    if x.device.type != "cpu" or not 0 < parts < PARTS:
        return F.dropout(x, p)
    draws = -(-x.numel() // PER_DRAW)
    numbers = torch.empty(draws, dtype=torch.int64).random_(-(2**63), None)
    numbers = numbers.view(torch.int16)[: x.numel()].view(x.shape)  # -2^15 ... 2^15 - 1
    factors = numbers.ge_(parts - PARTS // 2).to(x.dtype)  # 1 or 0
    return x * factors.mul_(PARTS / (PARTS - parts))


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
