"""Positions at the input, in fairseq's tables: position p has row p + padding + 1."""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LearnedPositions(nn.Embedding):
    """Devlin et al. (2019): a learned vector for every position, drawn from N(0, 1/d).

    Args:
        positions: the number of positions
        width: d
        padding: the index of the padding token; the rows up to this index are not used
    """

    #: see `PositionScheme.position_axes`
    position_axes: ClassVar[dict[str, tuple[int, ...]]] = {"weight": (0,)}

    def __init__(self, positions: int, width: int, padding: int) -> None:
        super().__init__(positions + padding + 1, width, padding)
        nn.init.normal_(self.weight, std=width**-0.5)
        nn.init.zeros_(self.weight[padding])
        self.first_row = padding + 1

    def forward(self, positions: Tensor) -> Tensor:
        """(B|1, T) -> (B|1, T, d); positions of padding may exceed the table."""
        rows = positions + self.first_row
        return F.embedding(rows.clamp(max=len(self.weight) - 1), self.weight)


class SinusoidalPositions(nn.Module):
    """Vaswani et al. (2017), section 3.5, as in fairseq: sines, then cosines.

    Args:
        positions: the number of positions
        width: d
        padding: the index of the padding token; the rows up to this index are not used
    """

    def __init__(self, positions: int, width: int, padding: int) -> None:
        super().__init__()
        self.rows, self.width = positions + padding + 1, width
        self.padding_idx, self.first_row = padding, padding + 1
        self.register_buffer("weights", self.initial_values(), persistent=False)
        self.weights: Tensor

    def initial_values(self) -> Tensor:
        """The table, (rows, d) float32."""
        half = self.width // 2
        step = math.log(10000) / (half - 1)
        frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * -step)  # (d / 2,)
        rows = torch.arange(self.rows, dtype=torch.float32).unsqueeze(1)
        angles = rows * frequencies  # (rows, d / 2)
        table = torch.cat([angles.sin(), angles.cos()], dim=1)
        return F.pad(table, (0, self.width % 2))

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *args: Any) -> None:
        for name in ("weights", "_float_tensor"):  # in checkpoints of early versions of fairseq
            state.pop(prefix + name, None)
        super()._load_from_state_dict(state, prefix, *args)

    def forward(self, positions: Tensor) -> Tensor:
        """(B|1, T) -> (B|1, T, d); positions of padding may exceed the table."""
        rows = positions + self.first_row
        return F.embedding(rows.clamp(max=self.rows - 1), self.weights)


INPUT_POSITIONS: dict[str, type[LearnedPositions] | type[SinusoidalPositions]] = {
    "learned": LearnedPositions,
    "sinusoidal": SinusoidalPositions,
}
