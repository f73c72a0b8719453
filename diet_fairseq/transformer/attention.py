"""Multi-head attention with a position scheme in every head."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from ..attention.attend import KeyValueStore, attend, compute_dtype
from ..attention.backends import Backend, CallShape, find_backend, select_backend
from ..attention.compressed import Compression, zero_padding
from ..attention.context import Context
from ..attention.dropout import Dropout
from ..attention.moving import move_positions
from ..attention.packing import Packing
from ..attention.terms import (
    Schemes,
    compute_scores,
    drop_none,
    find_moving_scheme,
    prepare_schemes,
    query_scale,
)
from ..errors import UserError
from ..positions import PositionScheme, check_length
from ..positions.base import Projections
from ..positions.layout import Layout

# Notation: B sentences, H heads, Tq queries, Tk keys, d = H d_h model dimension. Layers have the
# input (T, B, d), because the heads of a projection are then B H matrices without a copy.


class PositionalAttention(nn.Module):
    """Multi-head attention with a position scheme; the parameters have fairseq's names.

    With ``compress_k`` it is the linear attention of Linformer, eq. 7, and of DIET-ABS-LIN, eq. 4:
    softmax(q (E X W_K)^T / sqrt(d_h) + position) (F X W_V). As in these equations, keys and values
    are compressed before they are projected (a figure in the Linformer paper has the reverse order,
    which differs by a bias). Padding contributes nothing to compressed keys, and all queries see
    all compressed keys.

    Args:
        embed_dim: d
        num_heads: H
        source_dim: the width of the source of cross-attention; None: self-attention
        dropout: the probability that a weight is dropped in training
        positions: the scheme of this attention; None: no scheme, or the scheme in the `Context`
        segments: the segment scores of this attention; None: none, or the scores in the `Context`
        compress_k: E of this attention; None: no compression, or E in the `Context`
        compress_v: F of this attention; None: F is E
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        source_dim: int | None = None,
        dropout: float = 0.0,
        positions: PositionScheme | None = None,
        segments: PositionScheme | None = None,
        compress_k: Compression | None = None,
        compress_v: Compression | None = None,
    ) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise UserError(
                f"the width must be a multiple of the {num_heads} attention heads, but is "
                f"{embed_dim}: change one of them"
            )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.is_cross = source_dim is not None
        self.dropout_module = Dropout(dropout)
        self.k_proj = nn.Linear(source_dim or embed_dim, embed_dim)
        self.v_proj = nn.Linear(source_dim or embed_dim, embed_dim)
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        # as in fairseq, three parts of one matrix, unless the source has another width
        gain = 2**-0.5 if source_dim in (None, embed_dim) else 1.0
        for part in (self.k_proj, self.v_proj, self.q_proj):
            nn.init.xavier_uniform_(part.weight, gain)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)
        self.positions, self.segments = positions, segments
        self.compress_k, self.compress_v = compress_k, compress_v

    def forward(
        self,
        x: Tensor,
        context: Context | None = None,
        source: Tensor | None = None,
        store: KeyValueStore | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to the tokens themselves, or to a source.

        Args:
            x: (Tq, B, d), or packed (N, 1, d)
            context: the result of `create_context` (default: self-attention without padding, in
                which queries see later keys unless a scheme is causal)
            source: (S, B, d), the source of cross-attention; not used if ``store`` contains it
            store: in self-attention, the keys and values of earlier tokens, to which the keys
                and values of x are added; in cross-attention, the keys and values of the source,
                for each row of x or once for every K rows of a sentence
            need_weights: also return the weights

        Returns:
            the output in the shape of x, and the weights before dropout (B, H, Tq, Tk) or None

        Raises:
            UserError: cross-attention, or decoding with a ``store``, has no context
        """
        if context is None:
            if self.is_cross or store is not None:
                raise UserError(
                    "cross-attention and decoding with a store need a context, which has the "
                    "positions of the keys: give the result of create_context"
                )
            is_causal = any(scheme.shape.causal for scheme in self.layer_schemes())
            layout = Layout.without_padding(x.size(0), x.device, is_causal)
            context = self.create_context(layout, x.size(1))
        schemes, packing = self.layer_schemes(), context.packing
        moving = find_moving_scheme(schemes or context.shared)
        if moving is not None:
            context, store = move_positions(moving, x, context, store)
        scale = query_scale(schemes or context.shared, self.head_dim)
        q = self._split_heads(self.q_proj(x).mul_(scale), packing)  # (B, H, Tq, d_h)
        stored = None if store is None or not self.is_cross else store.get_all()
        if stored is not None:
            k, v = stored  # (B / K, H, S, d_h)
        else:
            keys, values, context = self._keys_and_values(x if source is None else source, context)
            packing_of_keys = context.packing if source is None else None
            k = self._split_heads(self.k_proj(keys), packing_of_keys)  # (B, H, new keys, d_h)
            v = self._split_heads(self.v_proj(values), packing_of_keys)  # (B, H, new keys, d_h)
        rows = q.size(0)
        if rows != k.size(0):  # a sentence's rows share its source, so they become its queries
            q = q.unflatten(0, (k.size(0), -1)).squeeze(3).transpose(1, 2)  # (B / K, H, K, d_h)
        out, weights = attend(
            q,
            k,
            v,
            context,
            schemes,
            self.projections(),
            dropout=self.dropout_module.active_p,
            store=store,
            keys_are_cached=stored is not None,
            need_weights=need_weights,
        )
        if rows != out.size(0):
            out = out.transpose(1, 2).flatten(0, 1).unsqueeze(2)  # (B, H, 1, d_h)
            if weights is not None:
                weights = weights.transpose(1, 2).flatten(0, 1).unsqueeze(2)  # (B, H, 1, S)
        out = out.permute(2, 0, 1, 3).flatten(2)  # (Tq, B, d)
        return self.out_proj(out if packing is None else packing.pack(out)), weights

    def create_context(
        self,
        layout: Layout,
        batch: int,
        shared: Schemes = (),
        *,
        backend: str | Backend = "auto",
        compress: Compression | None = None,
        packing: Packing | None = None,
        temperature: float = 1.0,
        dtype: torch.dtype | None = None,
    ) -> Context:
        """The context of one forward pass, for this attention in all layers.

        The backend is selected once, and the shared scores are computed once for this backend.
        Layers that are recomputed in the backward pass therefore use the same backend.

        Args:
            layout: the positions of queries and keys, and the mask
            batch: B
            shared: the schemes that layers share
            backend: the value of ``--attention-backend``, or a backend that is not in the table
            compress: the compression that layers share
            packing: the packing of the layers' tokens
            temperature: divisor of the logits
            dtype: the dtype of the layers' input (default: the dtype of the weights)

        Raises:
            UserError: a sentence is longer than a table of absolute positions
        """
        schemes = shared or self.layer_schemes()
        for scheme in schemes:
            if scheme.absolute:
                # in self-attention the limit applies to tokens, not to compressed keys
                shape = scheme.shape
                check_length(layout, shape.keys if shape.cross else shape.queries)
        call_shape = CallShape(
            schemes,
            layout,
            (batch, self.num_heads, self.head_dim),
            compute_dtype(layout.key_positions.device, dtype or self.q_proj.weight.dtype),
            self.dropout_module.active_p,
        )
        backend = select_backend(backend, call_shape)
        scores = None
        if shared and find_moving_scheme(shared) is None:
            scores = compute_scores(shared, layout, find_backend(backend).native_score)
        prepare_schemes(shared, layout)
        return Context(layout, shared, scores, backend, compress, packing, temperature)

    def layer_schemes(self) -> Schemes:
        """The schemes that belong to this attention, without schemes that layers share."""
        return drop_none(self.positions, self.segments)

    def projections(self) -> Projections:
        """The projections of queries and keys, for position vectors: (R, d) -> (H, R, d_h)."""
        return Projections(
            lambda rows: self._split_heads(self.q_proj(rows).unsqueeze(1))[0],
            lambda rows: self._split_heads(self.k_proj(rows).unsqueeze(1))[0],
        )

    def _keys_and_values(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor, Context]:
        """The inputs of the projections of keys and of values, and the context of the result.

        Returns:
            x twice, or x compressed by E and by F, (k, B, d) each
        """
        compress = self.compress_k or context.compress
        if compress is None:
            return x, x, context
        layout, packing = context.layout, context.packing
        tokens = zero_padding(x, layout) if packing is None else packing.unpack(x)  # (T, B, d)
        keys = values = compress(tokens, layout)  # (k, B, d)
        if self.compress_v is not None:
            values = self.compress_v(tokens, layout)  # (k, B, d)
        compressed = replace(context, layout=layout.compressed(len(keys)), packing=None)
        return keys, values, compressed

    def _split_heads(self, x: Tensor, packing: Packing | None = None) -> Tensor:
        """(T, B, d), or packed (N, 1, d) -> (B, H, T, d_h)."""
        x = x if packing is None else packing.unpack(x)
        heads = x.transpose(0, 1).unflatten(-1, (self.num_heads, self.head_dim))  # (B, T, H, d_h)
        # Inductor's fused attention (PyTorch 2.13) assumes exactly this permutation of heads
        return heads.permute(0, 2, 1, 3)
