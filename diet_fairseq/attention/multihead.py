"""Multi-head attention with positions in every head: fairseq's, its parameters and its cache."""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..positions import PositionScheme
from ..positions.layout import Layout
from .backends import BACKENDS, AttentionCall, Request, quickest
from .context import Context, Schemes, Term, present, score_terms
from .packing import Packing

# Notation: B sentences, H heads, Tq queries, Tk keys, d = H d_h model dimension.


class PositionalAttention(MultiheadAttention):
    """fairseq's attention, its parameters and its decoding state, with a position scheme.

    softmax(q k^T + position + segment + mask) v: `backends.reference` computes it as it stands
    here, and `PositionScheme` says what position and segment are, and how q is scaled.

    Args:
        positions: the scheme of this layer alone; None: none, or the one in the `Context`
        segments: likewise, the segments' scores
        backend: a key of `BACKENDS`, or "auto"
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        positions: PositionScheme | None = None,
        segments: PositionScheme | None = None,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        self.positions = positions
        self.segments = segments
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
        own = present(self.positions, self.segments)
        schemes, term, backend = own or context.shared, context.term, context.backend

        scale = (score_terms(schemes) * self.head_dim) ** -0.5
        q = self._heads(self.q_proj(query).mul_(scale), packing)  # (B, H, Tq, d_h)
        k, v = self._keys_and_values(
            key, value, incremental_state, static_kv, packed_keys
        )  # (B, H, Tk, d_h)

        if k.size(2) >= 256 and k.device.type == "cpu":
            # Many rows that lie a power of 2 apart displace each other in a CPU's caches.
            k, v = k.contiguous(), v.contiguous()

        if own or term is None:
            backend = self.backend_for(schemes, layout, q.size(0))
            term = Term.of(schemes, layout, backend)
        attend = BACKENDS["reference" if need_weights else backend]
        q, k = term.shifted(q, k)
        out, weights = attend(AttentionCall(q, k, v, term, schemes, layout, self.dropout_now))
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

    def backend_for(self, schemes: Schemes, layout: Layout, batch: int, layers: int = 1) -> str:
        """The key of `BACKENDS` that the next call takes, when these schemes act in it.

        Args:
            batch: how many sentences it has
            layers: how many share what the schemes add
        """
        if self.backend in BACKENDS:
            return self.backend
        device, dtype = layout.key_positions.device.type, self.q_proj.weight.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        shape = (batch, self.num_heads, self.head_dim)
        request = Request(schemes, layout, shape, dtype, self.dropout_now, layers)
        return quickest(request)

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
