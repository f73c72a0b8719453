"""Multi-head attention with positions in every head: the equation, the cache, the fast path."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from ..positions import PositionScheme
from ..positions.layout import Layout
from .dropout import dropout as drop
from .packing import Packing
from .recompute import RecomputedAttention

# Notation: B sentences, H heads, Tq queries, Tk keys, d = H d_h model dimension.

#: what acts in one attention call, side by side: the position scheme, the segments' scores
Schemes = tuple[PositionScheme, ...]
Factors = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Term:
    """What schemes add to the content score whatever the input: a score, or pairs of factors."""

    score: Tensor | None = None
    factors: tuple[Factors, ...] = ()

    @staticmethod
    def of(schemes: Schemes, layout: Layout, factored: bool = False) -> "Term":
        """The schemes' sum; ``factored``: products stay apart where a scheme has them."""
        scores, factors = [], []
        for scheme in schemes:
            term = scheme.term(layout, factored)
            if isinstance(term, tuple):
                factors.append(term)
            elif term is not None:
                scores.append(term)
        return Term(reduce(torch.add, scores) if scores else None, tuple(factors))

    def dense(self) -> Tensor | None:
        """(B|1, H|1, Tq, Tk), or None where there is nothing to add."""
        scores = [query.float() @ key.float().mT for query, key in self.factors]
        scores += [] if self.score is None else [self.score]
        return reduce(torch.add, scores) if scores else None


@dataclass(frozen=True, eq=False)
class Context:
    """What attention must know beyond its input; travels through the layers as an argument.

    Attributes:
        layout: where queries and keys stand
        shared: the schemes that all layers share; empty where every layer has its own
        term: their term, computed once for all layers; None where each computes it (activation
            checkpointing would run backward through it twice)
        backend: what the term was computed for, a key of `BACKENDS`: so all layers attend
        compress: what compresses the keys and values of all layers, if they share it
        packing: how the tokens are packed that layers are given; None: they are not
    """

    layout: Layout
    shared: Schemes = ()
    term: Term | None = None
    backend: str = ""
    compress: nn.Module | None = None
    packing: Packing | None = None


def present(*schemes: PositionScheme | None) -> Schemes:
    """Those that are there."""
    return tuple(scheme for scheme in schemes if scheme is not None)


class PositionalAttention(MultiheadAttention):
    """fairseq's attention, its parameters and its decoding state, with a position scheme.

    softmax(q k^T / sqrt(score_terms d_h) + position + segment + mask) v, see `PositionScheme`.

    Args:
        positions: the scheme of this layer alone; None: none, or the one in the `Context`
        segments: likewise, the segments' scores
        score_terms: of whichever position scheme acts here
        backend: a key of `BACKENDS`, or "auto"
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        positions: PositionScheme | None = None,
        segments: PositionScheme | None = None,
        score_terms: int = 1,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        self.positions = positions
        self.segments = segments
        self.scaling = (score_terms * self.head_dim) ** -0.5
        self.backend = backend

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Context | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            query: (Tq, B, d); key, value: (Tk, B, d). Packed: (N, 1, d), keys if they are the query
            key_padding_mask: the `Context`; fairseq's layers hand this argument on untouched
            incremental_state: decoding state; Tq new queries follow the keys it holds
            static_kv: the keys are the encoder's and never grow
            need_weights: also return the weights, averaged over heads
            need_head_weights: then return them for each head

        Returns:
            as the query, and weights (B, Tq, Tk), or (H, B, Tq, Tk) per head, or None
        """
        context = key_padding_mask
        if context is None or attn_mask is not None or before_softmax:
            raise TypeError("PositionalAttention takes its masks from a Context")
        layout, packing = context.layout, context.packing
        packed_keys = packing if key is query else None

        q = self._heads(self.q_proj(query).mul_(self.scaling), packing)  # (B, H, Tq, d_h)
        k, v = self._keys_and_values(
            key, value, incremental_state, static_kv, packed_keys
        )  # (B, H, Tk, d_h)

        if k.size(2) >= 256 and k.device.type == "cpu":
            # Many rows that lie a power of 2 apart displace each other in a CPU's caches.
            k, v = k.contiguous(), v.contiguous()

        own = present(self.positions, self.segments)
        schemes, term, backend = own or context.shared, context.term, context.backend
        if own or term is None:
            backend = self.backend_for(schemes, layout)
            term = Term.of(schemes, layout, backend == "factors")
        attend = BACKENDS["reference" if need_weights else backend]
        out, weights = attend(q, k, v, term, schemes, layout, self.dropout_now)
        out = out.permute(2, 0, 1, 3).flatten(2)  # (Tq, B, d)
        out = self.out_proj(out if packing is None else packing.pack(out))
        if weights is None or not need_weights:
            return out, None
        weights = weights.transpose(0, 1)  # (H, B, Tq, Tk)
        return out, weights if need_head_weights else weights.mean(dim=0)

    @property
    def dropout_now(self) -> float:
        """The probability that a weight is dropped: in training, or where dropout is retained."""
        module = self.dropout_module
        return module.p if module.training or module.apply_during_inference else 0.0

    def backend_for(self, schemes: Schemes, layout: Layout) -> str:
        """The key of `BACKENDS` that the next call takes, when these schemes act in it."""
        if self.backend != "auto":
            return self.backend
        queries, keys = layout.query_positions.size(1), layout.key_positions.size(1)
        compressed = [scheme.shape.keys.positions for scheme in schemes if scheme.compressed]
        device = layout.key_positions.device
        return quickest(schemes, queries, min([keys, *compressed]), self.dropout_now, device)

    def _heads(self, x: Tensor, packing: Packing | None = None) -> Tensor:
        """(T, B, d), or packed -> (B, H, T, d_h)"""
        x = x if packing is None else packing.unpack(x)
        return x.unflatten(-1, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)

    def _keys_and_values(
        self,
        key: Tensor | None,
        value: Tensor | None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None,
        static_kv: bool,
        packing: Packing | None,
    ) -> tuple[Tensor, Tensor]:
        """All keys and values up to now, (B, H, Tk, d_h); remembered while decoding."""
        saved = {} if incremental_state is None else self._get_input_buffer(incremental_state)
        if static_kv and "prev_key" in saved:
            return saved["prev_key"], saved["prev_value"]
        k, v = (
            self._heads(project(x), packing)
            for project, x in ((self.k_proj, key), (self.v_proj, value))
        )
        if "prev_key" in saved:
            k = torch.cat([saved["prev_key"], k], dim=2)
            v = torch.cat([saved["prev_value"], v], dim=2)
        if incremental_state is not None:
            self._set_input_buffer(incremental_state, {"prev_key": k, "prev_value": v})
        return k, v


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    term: Term,
    schemes: Schemes,
    layout: Layout,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """The equation as it stands: q (B, H, Tq, d_h) already scaled, k and v (B, H, Tk, d_h).

    Returns:
        (B, H, Tq, d_h), and the weights before dropout (B, H, Tq, Tk)
    """
    score = q @ k.mT  # (B, H, Tq, d_h) @ (B, H, d_h, Tk) -> (B, H, Tq, Tk)
    position = term.dense()
    if position is not None:
        score = score + position.to(score.dtype)
    for scheme in schemes:
        query_score = scheme.query_score(q, layout)
        if query_score is not None:
            score = score + query_score
    if layout.mask is not None:
        # after all else: no learned score beats -inf
        score = score.masked_fill(layout.mask, float("-inf"))
    # float32: half precision has too few digits for a sum over many keys
    weights = F.softmax(score, dim=-1, dtype=torch.float32).to(score.dtype)
    kept = drop(weights, dropout) if dropout else weights
    out = kept @ v  # (B, H, Tq, Tk) @ (B, H, Tk, d_h) -> (B, H, Tq, d_h)
    for scheme in schemes:
        values = scheme.value_term(kept, layout)
        if values is not None:
            out = out + values
    return out, weights


def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    term: Term,
    schemes: Schemes,
    layout: Layout,
    dropout: float,
) -> tuple[Tensor, None]:
    """`torch.nn.functional.scaled_dot_product_attention`: scores as its mask, factors appended."""
    mask, width = layout.mask, v.size(3)  # (B|1, 1, Tq|1, Tk), d_h
    if term.factors:
        queries, keys = (
            [factor.to(q.dtype).expand(*q.shape[:2], -1, -1) for factor in side]
            for side in zip(*term.factors, strict=True)
        )
        q, k = torch.cat([q, *queries], dim=-1), torch.cat([k, *keys], dim=-1)  # (B, H, T, d_h+r)
        # PyTorch's fused kernels want one width, or it takes one that builds the score
        v = F.pad(v, (0, q.size(3) - width))  # (B, H, Tk, d_h+r)
    if term.score is not None:
        score = term.score.to(q.dtype)
        mask = score if mask is None else score.masked_fill(mask, float("-inf"))
    elif mask is not None:
        mask = ~mask  # torch's boolean masks say what is seen
    out = F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=1.0)
    return out[..., :width], None


def recompute(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    term: Term,
    schemes: Schemes,
    layout: Layout,
    dropout: float,
) -> tuple[Tensor, Tensor | None]:
    """`RecomputedAttention`, but for dropout, whose weights it would have to draw again."""
    if dropout:
        return reference(q, k, v, term, schemes, layout, dropout)
    score = term.dense()
    if score is None:
        return sdpa(q, k, v, term, schemes, layout, dropout)
    return RecomputedAttention.apply(q, k, v, score, layout.mask), None


#: ``--attention-backend``; "factors" is sdpa with products appended to q and k
BACKENDS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    "reference": reference,
    "sdpa": sdpa,
    "factors": sdpa,
    "recompute": recompute,
}


def quickest(
    schemes: Schemes, queries: int, keys: int, dropout: float, device: torch.device
) -> str:
    """The key of `BACKENDS` that "auto" takes, by what was measured (docs/performance.md).

    On a CPU PyTorch's fused attention is quicker for many keys, but has neither dropout nor a
    gradient for a score that is added: it then falls back to something slower than the plain
    equation. Factors have a gradient, but make vectors longer. On a GPU nothing was measured so
    far.
    """
    if dropout or device.type != "cpu" or any(scheme.reads_queries for scheme in schemes):
        return "reference"
    inference = not torch.is_grad_enabled()
    factored = schemes and all(scheme.factored for scheme in schemes)
    # the score of few queries, as in decoding, is small
    if factored and min(queries, keys) >= (2048 if inference else 1024):
        return "factors"
    if inference or not schemes:
        return "sdpa" if keys >= 128 else "reference"
    return "reference"
