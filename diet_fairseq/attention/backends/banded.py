"""The backend "banded": windows in blocks of queries, so that time and memory grow with Tq alone.

A block of C queries sees only the keys of its own block and the W keys on either side of it, for a
window of W tokens. The blocks are computed at once, as if they were more heads.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ...positions.layout import Layout, toeplitz
from ...positions.scores import Dense, Factors, Offsets, Score
from .call import AttentionCall
from .fused import append_factors, attend_fused, sdpa, widen
from .reference import reference

# Notation: B sentences, H heads, Tq queries, Tk keys, n blocks of C queries and K keys, W window.

#: smallest number of queries in a block
MIN_BLOCK = 64
#: number of keys from which fused attention is quicker on a CPU (docs/performance.md)
FUSED_KEYS = 128


def band_fits(layout: Layout) -> bool:
    """Whether the keys that a query sees are neighbours in memory."""
    return layout.window is not None and layout.is_toeplitz


def block_size(window: int) -> int:
    """The number C of queries in a block, at least W, so that neighbours suffice."""
    return max(window, MIN_BLOCK)


def is_narrow(layout: Layout) -> bool:
    """Whether blocks read at most half of the keys, so that they are quicker on a CPU."""
    queries, keys = layout.query_positions.size(1), layout.key_positions.size(1)
    window = layout.window or keys
    return keys >= 2 * (min(queries, block_size(window)) + 2 * window)


def banded(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
    """The backend "banded": blocks of queries, or `sdpa` for calls that it can't compute."""
    call = call.fold_temperature()
    if not band_fits(call.layout) or any(isinstance(score, Dense) for score in call.scores):
        return sdpa(call)
    call = drop_far_keys(call)
    queries, width = call.q.size(2), call.v.size(3)
    window, causal = call.layout.window, call.layout.causal
    if queries < call.k.size(2) or window is None:  # in decoding
        return (sdpa if call.k.size(2) >= FUSED_KEYS else reference)(call)
    call = append_factors(call)
    size = block_size(window)
    q = split_blocks(call.q, size)  # (B, H, n, C, d_h)
    values = widen(call.v, call.q.size(3))
    k, v = (add_neighbours(split_blocks(x, size), window, causal) for x in (call.k, values))
    score = compute_block_scores(call, window, size)  # (B|1, H|1, n, C, K)
    blocks = replace(call, q=q, k=k, v=v, schemes=(), scores=(Dense(score),), layout=NO_MASK)
    needs_gradient = score.requires_grad and torch.is_grad_enabled()
    if call.dropout or needs_gradient or k.size(3) < FUSED_KEYS:
        out, _ = reference(blocks)
    else:
        out = attend_fused_blocks(blocks, score)
    return out.flatten(2, 3)[:, :, :queries, :width], None


#: the layout of blocks, whose score contains the mask
NO_MASK = Layout(torch.empty(1, 0, dtype=torch.int64), torch.empty(1, 0, dtype=torch.int64))


def drop_far_keys(call: AttentionCall) -> AttentionCall:
    """The call without the keys before the window of the first query, as in decoding."""
    layout = call.layout
    queries, window = call.q.size(2), layout.window or 0
    first = call.k.size(2) - queries - window
    if first <= 0:
        return call

    scores: list[Score] = []
    for score in call.scores:
        if isinstance(score, Offsets):
            scores.append(replace(score, line=score.line[:, first:]))
        elif isinstance(score, Factors):
            scores.append(replace(score, key=score.key[:, :, first:]))

    padding = layout.padding_mask
    near = replace(
        layout,
        key_positions=layout.key_positions[:, first:],
        padding_mask=None if padding is None else padding[:, first:],
        window=None,
    ).with_window(window)
    k, v = call.k[:, :, first:], call.v[:, :, first:]
    return replace(call, k=k, v=v, scores=tuple(scores), layout=near)


def split_blocks(x: Tensor, size: int) -> Tensor:
    """(..., T, d) -> (..., n, C, d), with zeros at the end."""
    return F.pad(x, (0, 0, 0, -x.size(-2) % size)).unflatten(-2, (-1, size))


def add_neighbours(x: Tensor, window: int, causal: bool) -> Tensor:
    """Blocks (..., n, C, d) with the W vectors before and after each: (..., n, K, d)."""
    before = F.pad(x[..., :-1, -window:, :], (0, 0, 0, 0, 1, 0))
    if causal:
        return torch.cat([before, x], dim=-2)
    return torch.cat([before, x, F.pad(x[..., 1:, :window, :], (0, 0, 0, 0, 0, 1))], dim=-2)


def compute_block_scores(call: AttentionCall, window: int, size: int) -> Tensor:
    """The scores of positions in blocks, with -inf where a query doesn't see a key.

    Returns:
        (B|1, H|1, n, C, K)
    """
    layout, queries, device = call.layout, call.q.size(2), call.q.device
    after = 0 if layout.causal else window
    line = call.q.new_zeros(1, window + 1 + after, dtype=torch.float32)
    for score in call.scores:
        if isinstance(score, Offsets):
            line = line + score.line[:, queries - 1 - window : queries + after]
    line = F.pad(line, (size - 1, size - 1), value=float("-inf"))
    scores = toeplitz(line, size)[None, :, None]  # (1, H|1, 1, C, K)

    is_visible = torch.ones(1, queries, dtype=torch.bool, device=device)
    if layout.hidden is not None:
        is_visible = ~layout.hidden  # (B, T)
    # Slots before the first and after the last key are filled with False.
    is_visible = add_neighbours(split_blocks(is_visible.unsqueeze(-1), size), window, not after)
    slots = torch.arange(-window, size + after, device=device)
    is_diagonal = slots == torch.arange(size, device=device).unsqueeze(1)  # (C, K)
    mask = ~(is_visible.mT | is_diagonal)  # (B|1, n, C, K): queries at padding see themselves
    return scores.masked_fill(mask.unsqueeze(1), float("-inf"))


def attend_fused_blocks(call: AttentionCall, score: Tensor) -> Tensor:
    """PyTorch's fused attention of blocks (B, H, n, C, d), whose kernels need four dimensions."""
    if score.size(0) == score.size(1) == 1:
        score = score.squeeze(0)  # (1, n, C, K)
    else:
        score = score.expand(*call.q.shape[:2], -1, -1, -1).flatten(0, 1)  # (B H, n, C, K)
    q, k, v = (x.flatten(0, 1) for x in (call.q, call.k, call.v))
    return attend_fused(call, q, k, v, score).unflatten(0, call.q.shape[:2])
