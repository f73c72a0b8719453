"""The decoder: it computes features of the next token from earlier tokens and a source."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.context import Context
from ..attention.terms import drop_none
from ..errors import UserError
from ..positions import check_length
from ..positions.layout import Layout
from .cache import DecodingCache
from .config import StackConfig
from .stack import Stack

# Notation: B sentences, T target tokens, S source tokens, H heads, d model dimension.


@dataclass
class DecoderOutput:
    """The result of a decoder.

    Attributes:
        features: (B, T, d), or (B, T, ``StackConfig.output_dim``)
        states: (B, T, d) each, the input of the first layer and every layer's output
        weights: layer -> weights of self-attention (B, H, T, T)
        cross_weights: layer -> weights of cross-attention (B, H, T, S)
    """

    features: Tensor
    states: list[Tensor]
    weights: dict[int, Tensor] = field(default_factory=dict)
    cross_weights: dict[int, Tensor] = field(default_factory=dict)


class Decoder(Stack):
    """A decoder, whose parameters have fairseq's names.

    ``positions`` and ``cross_positions`` are the schemes that layers share in self-attention and in
    cross-attention, or None. ``project_in_dim`` maps embeddings to the width of the layers, and
    ``project_out_dim`` maps the layers' output to the output width; both may be None.
    """

    def __init__(self, config: StackConfig, embed_tokens: nn.Module) -> None:
        super().__init__(config, embed_tokens)
        has_shared_schemes = config.shares_schemes and config.source is not None
        schemes = config.build_schemes(is_cross=True) if has_shared_schemes else {}
        self.cross_positions = schemes.get("positions")

    def build_embedding(self, width: int) -> None:
        model_width = self.stack_config.embed_dim
        has_map = self.stack_config.has_embedding_map
        self.quant_noise = nn.Linear(model_width, model_width, bias=False) if has_map else None
        self.project_in_dim = build_projection(width, model_width)
        self.build_input_parts(model_width)

    def build_output(self) -> None:
        config = self.stack_config
        self.project_out_dim = build_projection(
            config.embed_dim, config.output_dim or config.embed_dim
        )

    def forward(
        self,
        tokens: Tensor,
        source: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
        cache: DecodingCache | None = None,
    ) -> DecoderOutput:
        """Decode ``tokens`` (B, T), which are all tokens so far.

        With a cache, only the tokens that the cache does not contain are computed. The other
        arguments are as in `decode`.
        """
        padding_mask = tokens.eq(self.padding_idx)
        new = tokens if cache is None else tokens[:, cache.length :]
        return self.decode(new, source, source_padding_mask, cache, padding_mask=padding_mask)

    def decode(
        self,
        tokens: Tensor | None,
        source: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
        cache: DecodingCache | None = None,
        *,
        embeddings: Tensor | None = None,
        padding_mask: Tensor | None = None,
        is_causal: bool = True,
        source_positions: Tensor | None = None,
        need_weights: Container[int] = (),
        need_cross_weights: Container[int] = (),
    ) -> DecoderOutput:
        """Decode new tokens.

        Args:
            tokens: (B, T) int64, the tokens after the cached tokens
            source: (B, S, d), the output of the encoder; None: no cross-attention
            source_padding_mask: (B, S) bool, True at padding (default: none)
            cache: the decoding state, to which the new tokens are added
            embeddings: (B, T, e), used instead of the embeddings of ``tokens``, before scaling
            padding_mask: (B, past + T) bool, True at padding (default: at new padding tokens)
            is_causal: whether tokens see no later tokens
            source_positions: (B, S) int64, the positions of the source, if they are random
            need_weights: the layers whose self-attention weights are returned
            need_cross_weights: the layers whose cross-attention weights are returned

        Raises:
            UserError: a sentence is longer than the length limit, or there are no new tokens, or
                rows share a source (`DecodingCache.share_source`) and there are several new tokens
                or a scheme in cross-attention
        """
        if embeddings is None:
            embeddings = self.embed_tokens(tokens)
        if cache is not None:
            self._check_new_tokens(embeddings.size(1), cache)
        past = 0 if cache is None else cache.length
        if padding_mask is None:
            padding_mask = tokens.eq(self.padding_idx)  # type: ignore[union-attr]
            padding_mask = nn.functional.pad(padding_mask, (past, 0))
        batch, length = embeddings.shape[:2]
        layout = Layout.of_self_attention(
            padding_mask, is_causal, queries=None if cache is None else length
        )
        check_length(layout, self.limit)
        if self.sampling is not None and self.training and cache is None:
            layout = self.sampling.draw(layout, batch, source_positions)
        x = self.embed_scale * embeddings
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        x = self.add_positions(x, layout).transpose(0, 1)  # (T, B, d)

        contexts = self.create_contexts(layout, batch, dtype=x.dtype)
        if self.stack_config.source is None:
            source = None
        cross_context = None
        if source is not None:
            source = source.transpose(0, 1)  # (S, B, d)
            if cache is not None:
                if cache.source_padding_mask is None:
                    cache.source_padding_mask = source_padding_mask
                source_padding_mask = cache.source_padding_mask
            cross_context = self._create_cross_context(
                layout, source, source_padding_mask, source_positions
            )
        out = DecoderOutput(x, [x.transpose(0, 1)])
        for index, layer in self.active_layers():
            x, weights, cross_weights = layer(
                x,
                contexts[index],
                source,
                cross_context,
                cache,
                need_weights=index in need_weights,
                need_cross_weights=index in need_cross_weights,
            )
            out.states.append(x.transpose(0, 1))
            if index in need_weights:
                out.weights[index] = weights
            if index in need_cross_weights and cross_weights is not None:
                out.cross_weights[index] = cross_weights
        if cache is not None:
            cache.length += length
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)  # (B, T, d)
        out.features = x if self.project_out_dim is None else self.project_out_dim(x)
        return out

    def _check_new_tokens(self, length: int, cache: DecodingCache) -> None:
        if length == 0:
            raise UserError("decoding needs at least one new token, but there are 0: give tokens")
        has_scheme = self.stack_config.positions.scheme_in(cross=True) is not None
        if cache.beams > 1 and (length > 1 or has_scheme):
            what = f"{length} new tokens" if length > 1 else "a position scheme in cross-attention"
            raise UserError(
                "rows that share a source need one new token at a time and no position scheme in "
                f"cross-attention, but this call has {what}: leave out share_source"
            )

    def _create_cross_context(
        self,
        layout: Layout,
        source: Tensor,
        padding_mask: Tensor | None,
        source_positions: Tensor | None,
    ) -> Context:
        """The context of the layers' cross-attention to a source (S, B, d)."""
        source_length, batch, _ = source.shape
        config = self.stack_config
        positions = config.positions
        attention: Any = self.layers[0].encoder_attn
        options: dict[str, Any] = {"backend": self.backend_setting(), "dtype": source.dtype}
        if positions.scheme_in(cross=True) is None:
            # no scheme in cross-attention needs positions
            cross_layout = Layout.mask_only(layout, source_length, padding_mask)
            return attention.create_context(cross_layout, batch, **options)
        if padding_mask is None:
            device = layout.key_positions.device
            padding_mask = torch.zeros(batch, source_length, dtype=torch.bool, device=device)
        drawn = None
        if source_positions is not None:
            limit = config.source.limit.positions  # type: ignore[union-attr]
            drawn = source_positions, positions.position_sampling_length or limit
        return attention.create_context(
            Layout.of_cross_attention(layout, padding_mask, drawn),
            batch,
            drop_none(self.cross_positions),
            temperature=1.0 if self.training else positions.temperature,
            **options,
        )


def build_projection(width: int, new_width: int) -> nn.Linear | None:
    """A linear map without bias from one width to another; None: the widths are equal."""
    if width == new_width:
        return None
    linear = nn.Linear(width, new_width, bias=False)
    nn.init.xavier_uniform_(linear.weight)
    return linear
