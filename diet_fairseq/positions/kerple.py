"""KERPLE: a score that falls with the logarithm or a power of the distance."""

from typing import Any

import torch
from torch import Tensor, nn

from .base import AttentionShape, PositionScheme
from .layout import Layout
from .options import Option
from .scores import Offsets, at_least_float32

KERPLE = Option(
    "position_kerple",
    str,
    "kerple: the score falls with the logarithm or with a power of the distance (default: log)",
    default="log",
    choices=("log", "power"),
)
#: the least r2 of the authors' code, and the largest of the power
LEAST, LARGEST_POWER = 0.01, 2.0


class Kerple(PositionScheme):
    """KERPLE, Chi et al. (2022): kernels of the distance, unscaled.

    log: score(i, j) = -r1 log(1 + r2 |i - j|); power: -r1 |i - j|^r2. ``r1`` and ``r2`` (H,) are
    parameters of every head, which all layers share, and start uniformly below 2 and below 1 (log),
    or 1 and 2 (power), as in the authors' code (github.com/chijames/KERPLE). The kernels are
    symmetric; the paper tries them in causal attention only. They have no gain: they start at the
    size of trained ones, and the distance multiplies them.

    The theory asks for r1 > 0, r2 > 0 and, in the power, r2 <= 2. The authors' code sets parameters
    outside 0.01 to 2 back to that bound before each use. Here the bound takes the place of such a
    parameter and gives it its gradient (`bounded`), so no forward pass writes to a parameter. And
    r1 may be 0, so that a warm start begins without the term.
    """

    options = (KERPLE,)

    def __init__(self, shape: AttentionShape, *, kerple: str) -> None:
        super().__init__(shape)
        self.kerple = kerple
        largest = (2.0, 1.0) if kerple == "log" else (1.0, 2.0)
        self.r1, self.r2 = (nn.Parameter(torch.rand(shape.heads) * most) for most in largest)

    def zero(self) -> None:
        nn.init.zeros_(self.r1)

    def description(self) -> dict[str, Any]:
        return super().description() | {"kerple": self.kerple}

    def score(self, layout: Layout) -> Offsets:
        distances = layout.offset_line.abs()  # (number of offsets,)
        r1 = bounded(self.r1, 0.0).unsqueeze(1)  # (H, 1)
        if self.kerple == "log":
            r2 = bounded(self.r2, LEAST).unsqueeze(1)  # (H, 1)
            return Offsets(-r1 * torch.log1p(r2 * distances), layout)
        r2 = bounded(self.r2, LEAST, LARGEST_POWER).unsqueeze(1)  # (H, 1)
        return Offsets(-r1 * distances.to(r2.dtype).pow(r2), layout)


def bounded(parameter: Tensor, least: float, largest: float | None = None) -> Tensor:
    """The parameter clamped, in float32 or wider, with the gradient of the clamped value."""
    value = at_least_float32(parameter)
    return value + (value.clamp(least, largest) - value).detach()
