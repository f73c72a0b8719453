"""Tables of positions: their limits, and their rows in float32."""

import torch.nn.functional as F
from torch import Tensor

from ..errors import UserError
from .base import Limit
from .layout import Layout
from .scores import at_least_float32


def check_length(layout: Layout, limit: Limit) -> None:
    """Refuse a layout with more keys than an absolute table of ``limit`` rows has."""
    longest = layout.key_positions.size(1)
    if longest <= limit.positions:
        return
    if layout.padding_mask is not None:  # the batch may be padded beyond its longest sentence
        longest = int((~layout.padding_mask).sum(dim=1).max())
    if longest > limit.positions:
        raise UserError(
            f"a sentence of {longest} tokens is longer than the {limit.positions} positions "
            f"of the model ({limit.flag}): shorten it, or train with a larger {limit.flag}"
        )


def look_up(rows: Tensor, table: Tensor) -> Tensor:
    """`F.embedding`, with a table in half precision cast to float32.

    The gradient of a row sums those of thousands of tokens, which half precision would lose.
    """
    return F.embedding(rows, at_least_float32(table))


def take_rows(table: Tensor, positions: Tensor, heads: int) -> Tensor:
    """Rows of a table, split into heads.

    Args:
        table: (n, H * r)
        positions: (B|1, T) int64; positions of padding may exceed the table

    Returns:
        (B|1, H, T, r)
    """
    rows = look_up(positions.clamp(max=table.size(0) - 1), table)  # (B|1, T, H * r)
    return rows.unflatten(-1, (heads, -1)).transpose(1, 2)
