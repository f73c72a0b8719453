"""The layer of encoders and decoders."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from ..attention.context import Context
from ..attention.dropout import Dropout
from .attention import PositionalAttention
from .cache import DecodingCache
from .config import StackConfig

# Notation: B sentences, T tokens, S source tokens, H heads, d model dimension.

#: the output of a layer, and the weights of its self-attention and its cross-attention
LayerOutput = tuple[Tensor, Tensor | None, Tensor | None]


class TransformerLayer(nn.Module):
    """Self-attention, cross-attention in decoders, and a feed-forward layer, each with a residual.

    The parameters have fairseq's names.

    Args:
        config: the sizes and options of the encoder or decoder
        index: the number of the layer, from 0
    """

    def __init__(self, config: StackConfig, index: int) -> None:
        super().__init__()
        width, self.index = config.embed_dim, index
        self.normalize_before = config.normalize_before
        self.checkpoint_activations = config.checkpoint_activations
        self.offload_activations = config.offload_activations
        self.dropout_module = Dropout(config.dropout)
        self.activation_dropout_module = Dropout(config.activation_dropout)
        self.activation_fn = config.activation
        self.self_attn = build_attention(config.at_layer(index), index)
        self.self_attn_layer_norm = nn.LayerNorm(width, config.layer_norm_eps)
        self.encoder_attn: PositionalAttention | None = None
        self.encoder_attn_layer_norm: nn.LayerNorm | None = None
        if config.source is not None:
            self.encoder_attn = build_attention(config, index, config.source.embed_dim)
            self.encoder_attn_layer_norm = nn.LayerNorm(width, config.layer_norm_eps)
        self.fc1 = nn.Linear(width, config.ffn_embed_dim)
        self.fc2 = nn.Linear(config.ffn_embed_dim, width)
        self.final_layer_norm = nn.LayerNorm(width, config.layer_norm_eps)

    def forward(self, x: Tensor, context: Context, *args: Any, **options: Any) -> LayerOutput:
        """Apply the layer (`compute`); activation checkpointing stores only x for backward."""
        if not (self.checkpoint_activations and torch.is_grad_enabled()):
            return self.compute(x, context, *args, **options)
        with save_on_cpu() if self.offload_activations else nullcontext():
            return checkpoint(self.compute, x, context, *args, use_reentrant=False, **options)

    def compute(
        self,
        x: Tensor,
        context: Context,
        source: Tensor | None = None,
        cross_context: Context | None = None,
        cache: DecodingCache | None = None,
        need_weights: bool = False,
        need_cross_weights: bool = False,
    ) -> LayerOutput:
        """Apply the layer.

        Args:
            x: (T, B, d), or packed (N, 1, d)
            context: the context of self-attention
            source: (S, B, d), the source of cross-attention; None: no cross-attention
            cross_context: the context of cross-attention
            cache: the decoding state
            need_weights: also return the weights of self-attention
            need_cross_weights: also return the weights of cross-attention

        Returns:
            the output in the shape of x, and the weights (B, H, T, T) and (B, H, T, S) or None
        """
        weights: list[Tensor | None] = [None, None]

        def attend(x: Tensor) -> Tensor:
            store = None if cache is None else cache.store(self.index, is_cross=False)
            out, weights[0] = self.self_attn(x, context, None, store, need_weights)
            return out

        def attend_to_source(x: Tensor) -> Tensor:
            store = None if cache is None else cache.store(self.index, is_cross=True)
            out, weights[1] = self.encoder_attn(x, cross_context, source, store, need_cross_weights)  # type: ignore[misc]
            return out

        x = self.add_residual(attend, self.self_attn_layer_norm, x)
        if self.encoder_attn_layer_norm is not None and source is not None:
            x = self.add_residual(attend_to_source, self.encoder_attn_layer_norm, x)
        return (
            self.add_residual(self._feed_forward, self.final_layer_norm, x),
            weights[0],
            weights[1],
        )

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))

    def add_residual(self, part: Callable[[Tensor], Tensor], norm: nn.Module, x: Tensor) -> Tensor:
        """x + part(x), with LayerNorm before the part or after the sum."""
        if self.normalize_before:
            return x + self.dropout_module(part(norm(x)))
        return norm(x + self.dropout_module(part(x)))


def build_attention(
    config: StackConfig, layer: int, source_dim: int | None = None
) -> PositionalAttention:
    """The attention of a layer, with the schemes and compressions that layers don't share."""
    parts: dict[str, Any] = {}  # arguments of different types
    if config.positions.scheme.compressed:
        names = {"none": ("compress_k", "compress_v"), "key-value": ("compress_k",)}
        sharing = config.positions.projection_sharing or "none"
        parts |= {name: config.build_compression() for name in names.get(sharing, ())}
    if not config.shares_schemes:
        parts |= config.build_schemes(is_cross=source_dim is not None, layer=layer)
    return PositionalAttention(
        config.embed_dim,
        config.heads,
        source_dim=source_dim,
        dropout=config.attention_dropout,
        **parts,
    )
