"""fairseq's multi-head attention, its parameters and its cache, with positions in every head."""

from dataclasses import replace
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..attention.backends import BACKENDS, AttentionCall
from ..attention.compressed import Compression, without_padding
from ..attention.context import Context, Schemes, query_scale, scores_of, transformed, without_none
from ..attention.packing import Packing
from ..attention.rows import row_scores
from ..positions import PositionScheme
from ..positions.base import Projections

# Notation: B sentences, H heads, Tq queries, Tk keys, d = H d_h model dimension.


class PositionalAttention(MultiheadAttention):
    """fairseq's attention, its parameters and its decoding state, with a position scheme.

    `PositionScheme` has the equation, and `backends.reference` computes it.

    Args:
        positions: the scheme of this layer alone; None: none, or the one in the `Context`
        segments: likewise, the segments' scores
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        positions: PositionScheme | None = None,
        segments: PositionScheme | None = None,
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        self.positions = positions
        self.segments = segments

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Context,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to the keys.

        Args:
            query: (Tq, B, d); key, value: (Tk, B, d). Packed: (N, 1, d), keys if they are the query
            key_padding_mask: the `Context`, with all masks; fairseq's layers hand this argument on
                untouched
            incremental_state: decoding state; Tq new queries follow the keys in it
            static_kv: the keys are the encoder's and never grow
            need_weights: also return the weights, averaged over heads
            need_head_weights: then return them for each head

        Returns:
            as the query, and weights (B, Tq, Tk), or (H, B, Tq, Tk) per head, or None
        """
        context = key_padding_mask
        layout, packing = context.layout, context.packing
        packed_keys = packing if key is query else None
        layer_schemes, scores = self.layer_schemes(), context.scores
        schemes = layer_schemes or context.shared
        scale = query_scale(schemes, self.head_dim)
        q = self._heads(self.q_proj(query).mul_(scale), packing)  # (B, H, Tq, d_h)
        saved = {} if incremental_state is None else self._get_input_buffer(incremental_state)
        if static_kv and "prev_key" in saved:
            k, v = saved["prev_key"], saved["prev_value"]  # (B, H, Tk, d_h)
            transformed_q, _ = transformed(schemes, q, k[:, :, :0], layout)
        else:
            k = self._heads(self.k_proj(key), packed_keys)  # (B, H, new keys, d_h)
            v = self._heads(self.v_proj(value), packed_keys)  # (B, H, new keys, d_h)
            transformed_q, k = transformed(schemes, q, k, layout)
            if "prev_key" in saved:
                k = torch.cat([saved["prev_key"], k], dim=2)  # (B, H, Tk, d_h)
                v = torch.cat([saved["prev_value"], v], dim=2)  # (B, H, Tk, d_h)
            if incremental_state is not None:
                self._set_input_buffer(incremental_state, {"prev_key": k, "prev_value": v})

        if k.size(2) >= 256 and k.device.type == "cpu":
            # Many rows that lie a power of 2 apart displace each other in a CPU's caches.
            k, v = k.contiguous(), v.contiguous()

        attend = BACKENDS["reference" if need_weights else context.backend]
        if layer_schemes or scores is None:
            scores = scores_of(schemes, layout, attend.native_score)
        scores += row_scores(schemes, q, k, layout, self.projections(), scale)
        dropout, temperature = self.active_dropout, context.temperature
        call = AttentionCall(transformed_q, k, v, scores, schemes, layout, dropout, temperature)
        out, weights = attend(call)
        out = out.permute(2, 0, 1, 3).flatten(2)  # (Tq, B, d)
        out = self.out_proj(out if packing is None else packing.pack(out))
        if weights is None or not need_weights:
            return out, None
        weights = weights.transpose(0, 1)  # (H, B, Tq, Tk)
        return out, weights if need_head_weights else weights.mean(dim=0)

    def layer_schemes(self) -> Schemes:
        """The schemes of this layer alone."""
        return without_none(self.positions, self.segments)

    @property
    def active_dropout(self) -> float:
        """The probability that a weight is dropped: in training, or where dropout is retained."""
        module = self.dropout_module
        return module.p if module.training or module.apply_during_inference else 0.0

    def projections(self) -> Projections:
        """Its projections of queries and keys, for rows of positions."""
        return Projections(
            lambda rows: self._heads(self.q_proj(rows).unsqueeze(1))[0],
            lambda rows: self._heads(self.k_proj(rows).unsqueeze(1))[0],
        )

    def _heads(self, x: Tensor, packing: Packing | None = None) -> Tensor:
        """(T, B, d), or packed -> (B, H, T, d_h)."""
        x = x if packing is None else packing.unpack(x)
        heads = x.transpose(0, 1).unflatten(-1, (self.num_heads, self.head_dim))  # (B, T, H, d_h)
        # Inductor's fused attention takes every permutation of heads for this one (PyTorch 2.13).
        return heads.permute(0, 2, 1, 3)


class LinformerAttention(PositionalAttention):
    """softmax(q (E X W_K)^T / sqrt(d_h) + position) (F X W_V): Linformer, eq. 7; DIET, eq. 4.

    As in eq. 4 and in fairseq's Linformer keys and values are compressed before they are projected;
    the paper's figure has it the other way round, which differs by a bias. Padding contributes
    nothing to compressed keys, and all queries see all of them.

    Args:
        compress_k: E of this layer; None: the one in the `Context`
        compress_v: F of this layer; None: it is E
    """

    def __init__(
        self,
        *args: Any,
        compress_k: Compression | None = None,
        compress_v: Compression | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.compress_k = compress_k
        self.compress_v = compress_v

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Context,
        *rest: Any,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """As `PositionalAttention.forward` in an encoder; weights are (.., Tq, k)."""
        context, layout = key_padding_mask, key_padding_mask.layout
        compress: Any = self.compress_k or context.compress
        if context.packing is not None:
            tokens = context.packing.unpack(key)  # (T, B, d)
        else:
            tokens = without_padding(key, layout)  # (T, B, d)
        keys = values = compress(tokens, layout)  # (k, B, d)
        if self.compress_v is not None:
            values = self.compress_v(tokens, layout)  # (k, B, d)
        compressed = replace(context, layout=layout.compressed(len(keys)))
        return super().forward(query, keys, values, compressed, *rest, **options)
