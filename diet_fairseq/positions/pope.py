"""PoPE: content is the magnitude of a complex number, and position its angle."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import AttentionShape, PositionScheme
from .distances import clamp_parameter
from .layout import Layout
from .rope import BASE


class Pope(PositionScheme):
    """PoPE, Gopalakrishnan et al. (2025): magnitudes softplus(q), angles of positions alone.

    The content score is replaced by

        sum over c of softplus(q_ic) softplus(k_jc) cos((j - i) theta_c + delta_c) / sqrt(d_h)

    with theta_c = base^(-c / d_h). ``delta`` (H, 1, d_h) is initially 0. As in the paper, it is
    clamped to -2 pi ... 0, but here a parameter beyond a bound gets the gradient of the bound
    (`clamp_parameter`). Every dimension c becomes two, the real and the imaginary part, so that
    queries and keys are twice as wide as values. Angles are float32 in every precision.
    """

    widening = 2
    sharing = "none"
    options = (BASE,)
    described_options = ("rope_base",)
    can_be_zero: ClassVar[bool] = False  # it replaces the content score

    def __init__(self, shape: AttentionShape, *, rope_base: float) -> None:
        super().__init__(shape)
        self.delta = nn.Parameter(torch.zeros(shape.heads, 1, shape.head_dim))
        # numbers, not a buffer, which `half()` would round
        self.frequencies = tuple(rope_base ** (-c / shape.head_dim) for c in range(shape.head_dim))

    def transform(self, q: Tensor, k: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        scale = self.shape.head_dim**0.5  # undoes the scale of the queries
        shift = clamp_parameter(self.delta, -2 * math.pi, 0.0)
        query = self._make_polar(q * scale, layout.query_positions) / scale
        return query, self._make_polar(k, layout.key_positions, shift)

    def _make_polar(self, x: Tensor, positions: Tensor, shift: Tensor | float = 0.0) -> Tensor:
        """x (B, H, T, d_h) at positions (B|1, T) -> (B, H, T, 2 d_h), real and imaginary parts."""
        frequencies = torch.tensor(self.frequencies, device=x.device)
        angles = positions[:, None, :, None] * frequencies + shift  # (B|1, H|1, T, d_h)
        size = F.softplus(x.float())
        return torch.cat([size * angles.cos(), size * angles.sin()], dim=-1).to(x.dtype)
