"""Packing: a batch without its padding, for layers that compute every token on its own."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..positions.layout import Layout

# Notation: B sentences of T slots contain N real tokens; x are vectors of width d.

#: the share of padding from which packing is faster (docs/performance.md)
MIN_PADDING_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Packing:
    """The real tokens of a batch, sentence after sentence.

    Attributes:
        slots: (N,) int64, the indices of the tokens among the B T slots
        shape: (B, T)
    """

    slots: Tensor
    shape: tuple[int, int]

    @staticmethod
    def from_layout(layout: Layout) -> "Packing | None":
        """The packing of a layout's tokens; None with little padding, or on a GPU (unmeasured)."""
        mask = layout.padding_mask
        if mask is None or mask.device.type != "cpu" or torch.compiler.is_compiling():
            return None
        slots = (~mask).flatten().nonzero()[:, 0]
        has_much_padding = len(slots) <= (1 - MIN_PADDING_SHARE) * mask.numel()
        return Packing(slots, (mask.size(0), mask.size(1))) if has_much_padding else None

    def pack(self, x: Tensor) -> Tensor:
        """(T, B, d) -> (N, 1, d)."""
        return x.transpose(0, 1).reshape(-1, x.size(2))[self.slots].unsqueeze(1)

    def unpack(self, x: Tensor) -> Tensor:
        """(N, 1, d) -> (T, B, d), zero at padding."""
        slots = x.new_zeros(self.shape[0] * self.shape[1], x.size(2))  # (B T, d)
        return slots.index_copy(0, self.slots, x[:, 0]).unflatten(0, self.shape).transpose(0, 1)
