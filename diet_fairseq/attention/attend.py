"""Multi-head attention with position schemes: scale, transform, score, attend.

`PositionScheme` has the equation, and `backends.reference` computes it.
"""

from typing import Protocol

import torch
from torch import Tensor

from ..positions.base import Projections
from .backends import AttentionCall, find_backend
from .context import Context
from .rows import row_scores
from .terms import NativeScore, Schemes, compute_scores, query_scale, transform_queries_and_keys

# Notation: B sentences, H heads, Tq queries, Tk keys of width d_h.


class KeyValueStore(Protocol):
    """The keys and values of one attention in incremental decoding, (B, H, Tk, d_h) each."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens, (B, H, new, d_h), and return all."""

    def get_all(self) -> tuple[Tensor, Tensor] | None:
        """All stored keys and values; None: nothing is stored yet."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    schemes: Schemes,
    project: Projections,
    *,
    dropout: float = 0.0,
    store: KeyValueStore | None = None,
    keys_are_cached: bool = False,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of queries to keys and values, with the position schemes' terms.

    Args:
        q: (B, H, Tq, d_h), scaled by `query_scale`
        k, v: (B, H, new keys, d_h), projected and not yet transformed
        context: the layout, the shared schemes with their scores, and the backend
        schemes: the schemes of this attention; empty: the schemes that layers share
        project: the layer's projections of queries and keys
        dropout: the probability that a weight is dropped
        store: the keys and values of earlier tokens, to which k and v are added
        keys_are_cached: k and v are complete, and k was transformed when it was stored
        need_weights: also return the weights, which only the reference backend computes

    Returns:
        (B, H, Tq, d_h), and the weights before dropout (B, H, Tq, Tk), or None
    """
    backend = find_backend("reference" if need_weights else context.backend)
    layout = context.layout
    new_k = k[:, :, :0] if keys_are_cached else k
    transformed_q, new_k = transform_queries_and_keys(schemes or context.shared, q, new_k, layout)
    if not keys_are_cached:
        k = new_k
        if store is not None:
            k, v = store.append(k, v)
    if k.size(2) >= 256 and k.device.type == "cpu":
        # Rows at addresses a power of 2 apart displace each other in a CPU's caches.
        k, v = k.contiguous(), v.contiguous()
    call = create_call(
        q, transformed_q, k, v, context, schemes, project, backend.native_score, dropout
    )
    return backend(call)


def create_call(
    q: Tensor,
    transformed_q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    schemes: Schemes,
    project: Projections,
    native_score: NativeScore,
    dropout: float = 0.0,
) -> AttentionCall:
    """The call that a backend computes; arguments as in `attend`, with all keys (B, H, Tk, d_h).

    ``native_score`` is `Backend.native_score` of the backend.
    """
    scores = None if schemes else context.scores
    schemes = schemes or context.shared
    if scores is None:
        scores = compute_scores(schemes, context.layout, native_score)
    scale = query_scale(schemes, q.size(-1))
    scores += row_scores(schemes, q, k, context.layout, project, scale, native_score)
    return AttentionCall(
        transformed_q, k, v, scores, schemes, context.layout, dropout, context.temperature
    )


def compute_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """The dtype of products on a device: autocast's dtype if it is enabled, otherwise ``dtype``."""
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return dtype
