"""The positions of the queries and keys of one attention call."""

import copy
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError


def token_positions(padding_mask: Tensor | None, length: int, device: torch.device) -> Tensor:
    """0-based token positions. Padding is not counted; positions of padding may exceed a table.

    Args:
        padding_mask: (B, T) bool, True at padding; None: there is no padding before a token
        length: T
        device: device of the result

    Returns:
        (B, T) int64, or (1, T) if the mask is None
    """
    if padding_mask is None:
        return torch.arange(length, device=device).unsqueeze(0)  # (1, T)
    return ((~padding_mask).cumsum(dim=1) - 1).clamp(min=0)  # (B, T)


def padding_flags(padding_mask: Tensor) -> tuple[bool, bool, bool]:
    """Whether a (B, T) mask has padding, padding before a token, and padding between tokens."""
    lazy = reads_flags(padding_mask)
    if lazy and not padding_mask.any():
        return False, False, False
    before_tokens = padding_mask[:, :-1] & ~padding_mask[:, 1:]  # (B, T - 1)
    if lazy and not before_tokens.any():
        return True, False, False
    # padding on the left of a sentence precedes one token; more such tokens follow holes
    holes = before_tokens.sum(dim=1) > padding_mask[:, 0]  # (B,)
    if lazy:
        return True, True, bool(holes.any())
    has_padding, has_left_padding, has_holes = torch.stack(
        [padding_mask.any(), before_tokens.any(), holes.any()]
    ).tolist()
    return has_padding, has_left_padding, has_holes


def reads_flags(mask: Tensor) -> bool:
    """Whether a flag of the mask can be read without a transfer from another device."""
    return mask.device.type == "cpu" and not torch.compiler.is_compiling()


@dataclass(frozen=True, eq=False)
class Layout:
    """The positions of queries (Tq) and keys (Tk) in one attention call, and the mask.

    In self-attention the queries are the last Tq of the Tk keys, so decoding a single token needs
    no separate code. B is 1 if all sentences of the batch have the same positions.

    Attributes:
        query_positions: (B|1, Tq) int64
        key_positions: (B|1, Tk) int64
        padding_mask: (B, Tk) bool, True at keys that are padding; None: no padding
        causal: whether queries see no later keys
        segments: (B, Tk) int64, the segment of each key; None: all keys are in segment 0
        length: the number of tokens, if positions are 0, 1, ... in every sentence and every token
            is a query; otherwise None
        is_toeplitz: whether position offsets equal slot offsets in every sentence, so that scores
            of offsets are a Toeplitz matrix. False for random positions, for padding between
            tokens, and in cross-attention with padding before tokens or in decoding
        bounds: exclusive upper bounds of the positions of queries and of keys; None: Tk
        indices: with random positions (`sampling`), the number of tokens before each query and
            before each key; None: the positions
        window: the largest distance, in tokens, of a key that a query sees; None: no limit
        step_sums: `moved`, or None if tokens move no positions
    """

    query_positions: Tensor
    key_positions: Tensor
    padding_mask: Tensor | None = None
    causal: bool = False
    segments: Tensor | None = None
    length: int | None = None
    is_toeplitz: bool = True
    bounds: tuple[int, int] | None = None
    indices: tuple[Tensor, Tensor] | None = None
    window: int | None = None
    step_sums: tuple[Tensor, Tensor] | None = None

    @staticmethod
    def of_self_attention(
        padding_mask: Tensor,
        causal: bool = False,
        queries: int | None = None,
        segments: Tensor | None = None,
    ) -> "Layout":
        """The layout of self-attention in a padded batch.

        Args:
            padding_mask: (B, T) bool, True at padding
            causal: whether queries see no later keys
            queries: the number of queries, which are the last tokens; None: all tokens
            segments: (B, T) int64, the segment of each token; None: all tokens are in segment 0

        Raises:
            UserError: the forward pass is being recorded, see `refuse_recording`
        """
        refuse_recording()
        length = padding_mask.size(1)
        has_padding, has_left_padding, has_holes = padding_flags(padding_mask)
        mask = padding_mask if has_left_padding else None
        positions = token_positions(mask, length, padding_mask.device)
        return Layout(
            query_positions=positions if queries is None else positions[:, -queries:],
            key_positions=positions,
            padding_mask=padding_mask if has_padding else None,
            causal=causal,
            segments=segments,
            length=None if has_left_padding or queries is not None else length,
            is_toeplitz=not has_holes,
        )

    @staticmethod
    def of_cross_attention(
        target: "Layout",
        source_padding_mask: Tensor,
        source_positions: tuple[Tensor, int] | None = None,
    ) -> "Layout":
        """The layout of cross-attention from a target to a source.

        Args:
            target: the layout of the target's self-attention
            source_padding_mask: (B, S) bool, True at padding
            source_positions: the arguments of `with_positions` for the source; None: 0, 1, ...
        """
        source = Layout.of_self_attention(source_padding_mask)
        if source_positions is not None:
            source = source.with_positions(*source_positions)
        return Layout(
            target.query_positions,
            source.key_positions,
            source.padding_mask,
            is_toeplitz=target.length is not None and source.length is not None,
            bounds=(target.query_bound, source.key_bound),
            indices=None if source.indices is None else (target.query_indices, source.key_indices),
        )

    @staticmethod
    def without_padding(length: int, device: torch.device, causal: bool = False) -> "Layout":
        """The layout of self-attention of sentences with ``length`` real tokens.

        Args:
            causal: whether queries see no later keys
        """
        positions = token_positions(None, length, device)
        return Layout(positions, positions, causal=causal, length=length)

    @staticmethod
    def mask_only(target: "Layout", source: int, padding_mask: Tensor | None) -> "Layout":
        """The layout of cross-attention without positions, whose only purpose is the mask.

        Args:
            target: the layout of the target's self-attention
            source: the number S of source tokens
            padding_mask: (B, S) bool, True at padding; None: no padding
        """
        slots = token_positions(None, source, target.key_positions.device)
        if padding_mask is not None and reads_flags(padding_mask) and not padding_mask.any():
            padding_mask = None
        return Layout(target.query_positions, slots, padding_mask, is_toeplitz=False)

    def with_positions(self, positions: Tensor, bound: int) -> "Layout":
        """This layout of T queries and T keys at other positions.

        Args:
            positions: (B, T) int64
            bound: exclusive upper bound of the positions
        """
        indices = self.key_indices.expand_as(positions)
        return replace(
            self,
            query_positions=positions,
            key_positions=positions,
            length=None,
            is_toeplitz=False,
            bounds=(bound, bound),
            indices=(indices, indices),
        )

    def with_window(self, window: int | None) -> "Layout":
        """This layout of self-attention, in which queries see no key at a larger distance."""
        if window is None or window >= self.key_positions.size(1) - 1:
            return self
        return replace(self, window=window)

    @cached_property
    def cache(self) -> dict[object, Any]:
        """The cache of results that depend only on positions; all layers share it."""
        return {}

    def last_keys(self, keys: int) -> "Layout":
        """The layout of the queries and the last ``keys`` keys, created once for all layers."""
        if keys == self.key_positions.size(1):
            return self
        if keys not in self.cache:
            first = self.key_positions.size(1) - keys
            self.cache[keys] = replace(
                self,
                key_positions=self.key_positions[:, first:],
                padding_mask=None if self.padding_mask is None else self.padding_mask[:, first:],
                is_toeplitz=False,
                bounds=(self.query_bound, self.key_bound),
                step_sums=None,
            )
        last: Layout = self.cache[keys]
        if self.step_sums is None:
            return last
        at_queries, at_keys = self.step_sums
        return last.move(at_queries, at_keys[:, :, at_keys.size(2) - keys :])

    def move(self, at_queries: Tensor, at_keys: Tensor) -> "Layout":
        """This layout with `moved` positions of one layer; layers share everything else."""
        _ = self.cache, self.mask  # computed once, because the copy shares what is there
        moved = copy.copy(self)
        object.__setattr__(moved, "step_sums", (at_queries, at_keys))
        return moved

    @property
    def moved(self) -> tuple[Tensor, Tensor]:
        """The sums of `PositionScheme.steps` at queries (B, H|1, Tq, r) and keys (B, H|1, Tk, r).

        They are in float32, and include the step of the query or key itself. In decoding, a scheme
        that only transforms gets the sums at the new keys.

        Raises:
            TypeError: the scheme has no steps
        """
        if self.step_sums is None:
            raise TypeError("layout.moved is the sum of a scheme's steps: override steps, too")
        return self.step_sums

    def compressed(self, k: int) -> "Layout":
        """The layout of the queries and the k compressed keys: no padding, no mask.

        ``length`` remains the number of tokens, because the queries are not compressed.
        """
        slots = torch.arange(k, device=self.key_positions.device).unsqueeze(0)  # (1, k)
        return Layout(self.query_positions, slots, length=self.length)

    @property
    def query_indices(self) -> Tensor:
        """(B|1, Tq) int64: the number of tokens before each query."""
        return self.query_positions if self.indices is None else self.indices[0]

    @property
    def key_indices(self) -> Tensor:
        """(B|1, Tk) int64: the number of tokens before each key."""
        return self.key_positions if self.indices is None else self.indices[1]

    @property
    def query_bound(self) -> int:
        """Exclusive upper bound of the queries' positions."""
        return self.key_positions.size(1) if self.bounds is None else self.bounds[0]

    @property
    def key_bound(self) -> int:
        """Exclusive upper bound of the keys' positions."""
        return self.key_positions.size(1) if self.bounds is None else self.bounds[1]

    @property
    def offset_range(self) -> tuple[int, int]:
        """The smallest and the largest offset j - i that can occur."""
        if self.bounds is None:  # the queries are the last of the keys
            return 1 - self.key_positions.size(1), self.query_positions.size(1) - 1
        return 1 - self.bounds[0], self.bounds[1] - 1

    @property
    def visible_offsets(self) -> tuple[int, int]:
        """The smallest and the largest offset j - i of a key that its query can see."""
        first, last = self.offset_range
        return first, min(last, 0) if self.causal else last

    @cached_property
    def offset_line(self) -> Tensor:
        """(number of offsets,) int64: the offsets of `offset_range`, ascending.

        If `is_toeplitz`, their number is Tq + Tk - 1.
        """
        first, last = self.offset_range
        return torch.arange(first, last + 1, device=self.key_positions.device)

    @cached_property
    def offsets(self) -> Tensor:
        """(B|1, Tq, Tk) int64: the position of the key minus the position of the query."""
        if self.is_toeplitz:  # all sentences have the same offsets
            return toeplitz(self.offset_line, self.query_positions.size(1)).unsqueeze(0)
        return self.key_positions.unsqueeze(1) - self.query_positions.unsqueeze(2)

    def expand_offsets(self, line: Tensor) -> Tensor:
        """A value for each offset -> a value for each pair of a query and a key.

        Args:
            line: (H, number of offsets), the values of `offset_line`

        Returns:
            (B|1, H, Tq, Tk)
        """
        if self.is_toeplitz:
            return toeplitz(line, self.query_positions.size(1)).unsqueeze(0)
        columns = self.offsets - self.offset_range[0]  # (B|1, Tq, Tk)
        return line[:, columns].transpose(0, 1)

    @cached_property
    def slot_offsets(self) -> Tensor:
        """(Tq, Tk) int64, in self-attention: the index of the key minus the index of the query.

        The indices count all slots of the batch, including padding.
        """
        queries, keys = self.query_positions.size(1), self.key_positions.size(1)
        device = self.key_positions.device
        return toeplitz(torch.arange(1 - keys, queries, device=device), queries)

    @cached_property
    def hidden(self) -> Tensor | None:
        """(B, Tk) bool, True at keys that no query sees, see `hidden_keys`; None: no padding."""
        return None if self.padding_mask is None else hidden_keys(self.padding_mask)

    @cached_property
    def is_far(self) -> Tensor | None:
        """(B|1, 1, Tq, Tk) bool, True at keys outside of the window; None: no window."""
        if self.window is None:
            return None
        if self.is_toeplitz:
            offsets = self.slot_offsets.unsqueeze(0)
        else:
            offsets = self.key_indices.unsqueeze(1) - self.query_indices.unsqueeze(2)
        return (offsets.abs() > self.window).unsqueeze(1)

    @cached_property
    def mask(self) -> Tensor | None:
        """(B|1, 1, Tq|1, Tk) bool, True where a query doesn't see a key; None: no mask."""
        hidden = None if self.hidden is None else self.hidden[:, None, None, :]  # (B, 1, 1, Tk)
        limits = [] if self.is_far is None else [self.is_far]
        if self.causal and (limits or hidden is not None or self.query_positions.size(1) > 1):
            limits.append((self.slot_offsets > 0)[None, None])  # (1, 1, Tq, Tk)
        if not limits:
            return hidden
        if hidden is None:
            return reduce(torch.logical_or, limits)
        # With left padding or a window, queries at padding would see no key, and softmax would give
        # NaN. Therefore they see themselves, also in decoding; their output is not used.
        return reduce(torch.logical_or, limits, hidden) & (self.slot_offsets != 0)


def hidden_keys(padding_mask: Tensor) -> Tensor:
    """(B, T) bool, True at padding, but False in a sentence that consists of padding only.

    A softmax over no key is NaN, and makes every gradient NaN, even if the loss omits the sentence.
    """
    return padding_mask & ~padding_mask.all(dim=1, keepdim=True)


def refuse_recording() -> None:
    """Refuse tracing and export, because the graph would be valid for the padding of one batch.

    Raises:
        UserError: the forward pass is traced or exported
    """
    exporting = getattr(torch.compiler, "is_exporting", bool)  # since PyTorch 2.7
    if torch.jit.is_tracing() or exporting():
        raise UserError(
            "torch.export, torch.jit.trace and ONNX record the operations of one batch, but models "
            "with position schemes skip some for a batch without padding: use the model itself, or "
            "torch.compile"
        )


def toeplitz(line: Tensor, rows: int) -> Tensor:
    """The matrix whose entry (i, j) depends only on j - i.

    Args:
        line: (..., rows + columns - 1): the value of each offset, ascending; the last row has the
            same position as the last column
        rows: the number of rows

    Returns:
        (..., rows, columns), a view whose gradient is summed along diagonals
    """
    return line.unfold(-1, line.size(-1) - rows + 1, 1).flip(-2)


def first_tokens(x: Tensor, padding_mask: Tensor) -> Tensor:
    """The vector of the first real token of each sentence: (B, T, d), (B, T) -> (B, d)."""
    return x[torch.arange(len(x), device=x.device), (~padding_mask).int().argmax(dim=1)]
