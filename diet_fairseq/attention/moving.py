"""Positions that tokens move: the sums of `PositionScheme.steps` in one layer."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..positions import PositionScheme
from ..positions.layout import Layout
from ..positions.scores import count_parts, join_parts, promote_to_float32, split_for
from .attend import KeyValueStore
from .context import Context

# Notation: B sentences, H heads, Tq new tokens, r numbers of a moved position.


def move_positions(
    scheme: PositionScheme, x: Tensor, context: Context, store: KeyValueStore | None = None
) -> tuple[Context, KeyValueStore | None]:
    """A layer's context with `Layout.moved`, and a store that also stores the moved positions.

    Args:
        scheme: the scheme with steps
        x: (Tq, B, d), the input of self-attention, or packed (N, 1, d)
        context: the context of all layers
        store: the keys and values of earlier tokens
    """
    layout, tokens = context.layout, x if context.packing is None else context.packing.unpack(x)
    moved = sum_steps(scheme, tokens.transpose(0, 1), layout)  # (B, H|1, Tq, r)
    if store is None:
        return replace(context, layout=layout.move(moved, moved)), None
    before = moved[:, :, :0]
    if (earlier := store.get_all()) is not None:
        keys, r = earlier[0], moved.size(-1)
        if scheme.kinds <= {"transform"}:  # stored keys are transformed, and only the sum goes on
            keys = keys[:, :, -1:]
        before = join_parts(keys[..., -r * count_parts(keys.dtype) :], r)  # (B, H, past|1, r)
        moved = moved + before[:, :, -1:]  # (B, H, Tq, r)
    at_keys = torch.cat([before, moved], dim=2)
    return replace(context, layout=layout.move(moved, at_keys)), MovingStore(store, moved)


def sum_steps(scheme: PositionScheme, x: Tensor, layout: Layout) -> Tensor:
    """The sums of the steps of tokens x (B, Tq, d), in which padding moves nothing.

    Returns:
        (B, H|1, Tq, r), in float32 or wider
    """
    with torch.autocast(x.device.type, enabled=False):
        steps = scheme.steps(promote_to_float32(x), layout)
    if layout.padding_mask is not None:
        padding = layout.padding_mask[:, -x.size(1) :]  # (B, Tq)
        steps = steps.masked_fill(padding[:, None, :, None], 0.0)
    return steps.cumsum(2)


@dataclass(frozen=True, eq=False)
class MovingStore:
    """A store of keys whose last columns are their moved positions.

    Whatever copies, reorders or shortens cached keys therefore does so with moved positions.

    Attributes:
        store: the store of the wider keys
        moved: (B, H|1, Tq, r), the moved positions of the new tokens
    """

    store: KeyValueStore
    moved: Tensor

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of the new tokens, (B, H, Tq, d_h), and return all."""
        columns = split_for(keys.dtype, self.moved).expand(-1, keys.size(1), -1, -1)
        keys, values = self.store.append(torch.cat([keys, columns], dim=-1), values)
        return keys[..., : keys.size(-1) - columns.size(-1)], values

    def get_all(self) -> tuple[Tensor, Tensor] | None:
        """All stored keys, with their columns, and values; None: nothing is stored yet."""
        return self.store.get_all()
