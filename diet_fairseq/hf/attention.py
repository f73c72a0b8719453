"""Attention of transformers' models: the reference, or a function registered with transformers.

Such a function gets `attention_bias`, one tensor for positions, segments and masks, as its mask. So
no function can leave a part of it out.
"""

from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..attention.backends.call import AttentionCall
from ..attention.backends.choice import UNFUSED
from ..attention.backends.reference import attention_bias, reference
from ..attention.compressed import Compression, without_padding
from ..attention.context import (
    Context,
    kinds_of,
    query_scale,
    scores_of,
    transformed,
    without_none,
)
from ..attention.rows import row_scores
from ..positions import PositionScheme
from ..positions.base import Projections
from .configuration import DietConfig

# Notation: B sentences, H heads, Tq queries, Tk keys, d = H d_h model dimension.


def schemes_of(
    config: DietConfig, causal: bool = False, cross: bool = False, layer: int = 0
) -> dict[str, PositionScheme]:
    """The schemes ``positions`` and ``segments`` of one kind of attention, where it has them."""
    return config.positions.build(config.attention_shape(causal, cross, layer), config.segment_gain)


def compression_of(config: DietConfig) -> Compression:
    """The compression of keys or values in `linformer` and `diet_abs_lin`."""
    shape = config.attention_shape()
    start = config.positions.position_start
    return Compression(shape.queries.positions, shape.keys.positions, start)


class DietAttention(nn.Module):
    """Attention as `PositionScheme` has it, with fairseq's parameters.

    "eager" is `attention.backends.reference`; every other function that is registered with
    transformers gets `attention_bias` as its mask, and the reference takes its place where a scheme
    has terms that no mask can hold (Shaw's values).
    """

    #: the mask is complete: a function must not add a causal one
    is_causal = False

    def __init__(
        self, config: DietConfig, layer_idx: int, causal: bool = False, cross: bool = False
    ) -> None:
        super().__init__()
        self.config, self.layer_idx, self.cross = config, layer_idx, cross
        stack = config.stack("decoder" if causal or cross else "encoder")
        positions = config.positions
        source = config.stack("encoder").embed_dim if cross else stack.embed_dim
        self.head_dim = stack.embed_dim // stack.attention_heads
        self.q_proj = nn.Linear(stack.embed_dim, stack.embed_dim)
        self.k_proj = nn.Linear(source, stack.embed_dim)
        self.v_proj = nn.Linear(source, stack.embed_dim)
        self.out_proj = nn.Linear(stack.embed_dim, stack.embed_dim)
        schemes: dict[str, PositionScheme] = {}
        if positions.position_sharing != "layer":
            schemes = schemes_of(config, causal, cross, layer_idx)
        self.positions, self.segments = schemes.get("positions"), schemes.get("segments")
        self.compress_k = self.compress_v = None
        if positions.scheme.compressed and positions.projection_sharing != "layer":
            self.compress_k = compression_of(config)
            if positions.projection_sharing != "key-value":
                self.compress_v = compression_of(config)

    def forward(
        self,
        hidden_states: Tensor,
        context: Context,
        source: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            hidden_states: (B, Tq, d)
            context: where queries and keys stand, and the schemes that all layers share
            source: (B, S, d), the encoder's output, in cross-attention
            cache: the keys and values up to now

        Returns:
            (B, Tq, d), and the weights (B, H, Tq, Tk) where the attention function has them
        """
        layer_schemes = without_none(self.positions, self.segments)
        schemes, scores, layout = layer_schemes or context.shared, context.scores, context.layout
        scale = query_scale(schemes, self.head_dim)
        q = self._heads(self.q_proj(hidden_states)) * scale  # (B, H, Tq, d_h)
        keys = values = hidden_states if source is None else source  # (B, Tk, d)
        compress_k = self.compress_k or context.compress
        if compress_k is not None:
            tokens = without_padding(keys.transpose(0, 1), layout)  # (Tk, B, d)
            keys = values = compress_k(tokens, layout).transpose(0, 1)  # (B, k, d)
            if self.compress_v is not None:
                values = self.compress_v(tokens, layout).transpose(0, 1)  # (B, k, d)
            layout = layout.compressed(keys.size(1))
        store: Any = cache
        if cache is not None:
            store = cache.cross_attention_cache if self.cross else cache.self_attention_cache
        if cache is not None and self.cross and cache.is_updated.get(self.layer_idx):
            k, v = store.layers[self.layer_idx].keys, store.layers[self.layer_idx].values
            turned, _ = transformed(schemes, q, k[:, :, :0], layout)
        else:
            k, v = self._heads(self.k_proj(keys)), self._heads(self.v_proj(values))
            turned, k = transformed(schemes, q, k, layout)
            if cache is not None:
                k, v = store.update(k, v, self.layer_idx)
                if self.cross:
                    cache.is_updated[self.layer_idx] = True
        if cache is not None:  # a static cache has room for more keys than there are
            k, v = (x[:, :, : layout.key_positions.size(1)] for x in (k, v))
        if layer_schemes or scores is None:
            scores = scores_of(schemes, layout)
        project = Projections(
            lambda rows: self._heads(self.q_proj(rows).unsqueeze(0))[0],
            lambda rows: self._heads(self.k_proj(rows).unsqueeze(0))[0],
        )
        scores += row_scores(schemes, q, k, layout, project, scale)
        dropout = self.config.attention_dropout if self.training else 0.0
        call = AttentionCall(turned, k, v, scores, schemes, layout, dropout, context.temperature)
        name = self.config._attn_implementation
        attend = None if name == "eager" else ALL_ATTENTION_FUNCTIONS[name]
        if attend is None or kinds_of(schemes) & UNFUSED:
            out, weights = reference(call)
            out = out.transpose(1, 2)  # (B, Tq, H, d_h)
        else:
            call = call.at_temperature()
            out, weights = attend(
                self, call.q, k, v, attention_bias(call), dropout=dropout, scaling=1.0, **kwargs
            )
        return self.out_proj(out.flatten(2)), weights

    def _heads(self, x: Tensor) -> Tensor:
        """(B, T, d) -> (B, H, T, d_h)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
