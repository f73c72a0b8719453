"""Where the queries and the keys of one attention call stand. Pure; imports torch only."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


def token_positions(padding_mask: Tensor | None, length: int, device: torch.device) -> Tensor:
    """0-based positions of the real tokens; what stands at padding is arbitrary but valid.

    Args:
        padding_mask: (B, T) bool, True at padding, or None where nothing is padded on the left.

    Returns:
        (B, T) int64, or (1, T) where the mask is None: positions count real tokens, so that they
        don't depend on the side of the padding.
    """
    if padding_mask is None:
        return torch.arange(length, device=device).unsqueeze(0)  # (1, T)
    return ((~padding_mask).cumsum(dim=1) - 1).clamp(min=0)  # (B, T)


@dataclass(frozen=True, eq=False)
class Layout:
    """The places of one attention call: queries (Tq), keys (Tk), and what may see what.

    In self-attention the queries are the last Tq of the Tk keys, so decoding a single token needs
    no code of its own. B is 1 where all sentences of the batch stand alike.

    Attributes:
        query_positions: (B|1, Tq) int64
        key_positions: (B|1, Tk) int64
        padding_mask: (B, Tk) bool, True at keys that are padding; None: no padding
        causal: queries don't see keys that come after them
        segments: (B, Tk) int64, which segment each key belongs to; None: all to the first
        length: how many tokens there are, where in every sentence they stand at 0, 1, ... and all
            of them ask; None: they don't
    """

    query_positions: Tensor
    key_positions: Tensor
    padding_mask: Tensor | None = None
    causal: bool = False
    segments: Tensor | None = None
    length: int | None = None

    @staticmethod
    def of_self_attention(
        padding_mask: Tensor,
        causal: bool = False,
        queries: int | None = None,
        segments: Tensor | None = None,
    ) -> "Layout":
        """The layout of a (B, T) bool padding mask; ``queries``: only the last so many ask."""
        length = padding_mask.size(1)
        # one transfer from the device instead of two
        padded, left = torch.stack([padding_mask.any(), padding_mask[:, 0].any()]).tolist()
        positions = token_positions(padding_mask if left else None, length, padding_mask.device)
        return Layout(
            query_positions=positions if queries is None else positions[:, -queries:],
            key_positions=positions,
            padding_mask=padding_mask if padded else None,
            causal=causal,
            segments=segments,
            length=None if left or queries is not None else length,
        )

    @staticmethod
    def of_cross_attention(target: "Layout", source_padding_mask: Tensor) -> "Layout":
        """Queries stand where the target's do, keys where the source's (B, S) real tokens do."""
        source = Layout.of_self_attention(source_padding_mask)
        return Layout(target.query_positions, source.key_positions, source.padding_mask)

    @cached_property
    def offset_line(self) -> Tensor:
        """(Tq + Tk - 1,) int64: every offset j - i that occurs in self-attention, ascending.

        Offsets count slots, padding included: between real tokens that is the same number.
        """
        queries, keys = self.query_positions.size(1), self.key_positions.size(1)
        return torch.arange(1 - keys, queries, device=self.key_positions.device)

    @cached_property
    def offsets(self) -> Tensor:
        """(Tq, Tk) int64: key slot - query slot, j - i, in self-attention."""
        return toeplitz(self.offset_line, self.query_positions.size(1))

    @cached_property
    def mask(self) -> Tensor | None:
        """(B|1, 1, Tq|1, Tk) bool, True where a query doesn't see a key; None: all is seen."""
        mask = None
        if self.padding_mask is not None:
            mask = self.padding_mask[:, None, None, :]  # (B, 1, 1, Tk)
        if self.causal and self.query_positions.size(1) > 1:
            future = self.offsets > 0  # (Tq, Tk)
            # Left padding leaves padding queries with nothing to see, and softmax with NaN: they
            # see themselves, and nobody reads what comes out.
            future = future if mask is None else (future | mask) & (self.offsets != 0)
            mask = future.expand(1, 1, *future.shape) if mask is None else future
        return mask


def toeplitz(line: Tensor, rows: int) -> Tensor:
    """The matrix whose entry (i, j) depends on j - i alone.

    Args:
        line: (..., rows + columns - 1), ascending: a value for each offset that occurs,
            the last row standing at the last column

    Returns:
        (..., rows, columns). Its gradient is summed along diagonals, not scattered.
    """
    return line.unfold(-1, line.size(-1) - rows + 1, 1).flip(-2)


def first_tokens(x: Tensor, padding_mask: Tensor) -> Tensor:
    """What stands at the first real token of each sentence: (B, T, d), (B, T) -> (B, d)."""
    return x[torch.arange(len(x), device=x.device), (~padding_mask).int().argmax(dim=1)]
