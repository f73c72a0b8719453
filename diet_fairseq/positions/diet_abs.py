"""DIET-ABS: a free product of low rank, per head."""

import torch
from torch import Tensor, nn

from ..layout import Layout
from .base import AttentionShape, PositionScheme, check_at_least, take_rows


class DietAbs(PositionScheme):
    """score(i, j) = (P_Q P_K^T)_ij, Chen et al. (2021), eq. 1: unscaled, of rank at most d_p.

    ``query`` and ``key`` are P_Q and P_K of every head, (H, n, d_p), drawn from N(0, 0.02): the
    paper doesn't say, and two zero matrices would never get a gradient. d_p is d_h by default.
    """

    absolute = True
    segment_scheme = "per-head"
    factored = True

    def __init__(self, shape: AttentionShape, *, rank: int | None = None) -> None:
        super().__init__(shape)
        rank = shape.head_dim if rank is None else check_at_least("--position-rank", rank, 1)
        self.query = nn.Parameter(torch.empty(shape.heads, shape.queries.positions, rank))
        self.key = nn.Parameter(torch.empty(shape.heads, shape.keys.positions, rank))
        nn.init.normal_(self.query, std=0.02)
        nn.init.normal_(self.key, std=0.02)

    def zero(self) -> None:
        nn.init.zeros_(self.key)  # and not the query: two zeros would have no gradient

    def factors(self, layout: Layout) -> tuple[Tensor, Tensor]:
        return (
            self._of(self.query, layout.query_positions, layout.length),
            self._of(self.key, layout.key_positions, layout.length),
        )

    def _of(self, parameter: Tensor, positions: Tensor, length: int | None) -> Tensor:
        if length is not None and length <= parameter.size(1):
            return parameter[:, :length].unsqueeze(0)  # (1, H, T, d_p), nothing copied
        table = parameter.transpose(0, 1).flatten(1)  # (n, H * d_p)
        return take_rows(table, positions, self.shape.heads)  # (B|1, H, T, d_p)


DietAbs.cross = DietAbs
