"""fairseq's decoder with positions in self-attention and, as an option, in cross-attention."""

from typing import Any

from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn

from ..attention.context import Context, without_none
from ..positions import check_length
from ..positions.layout import Layout, hidden_keys
from . import forward_context
from .attention import PositionalAttention
from .placement import Placement


class PositionalDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's layer around our attention; its padding masks carry the `Context`."""

    def __init__(
        self,
        cfg: Any,
        placement: Placement,
        crossing: Placement,
        index: int,
        no_encoder_attn: bool = False,
    ) -> None:
        # before fairseq's constructor, which builds the attention
        self.placement, self.crossing, self.index = placement, crossing, index
        super().__init__(cfg, no_encoder_attn)

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> PositionalAttention:
        return self.placement.build_attention(self.index)

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        if self.crossing.scheme is None:
            return super().build_encoder_attention(embed_dim, cfg)
        return self.crossing.build_attention(self.index)


class PositionalDecoder(TransformerDecoderBase):
    """fairseq's decoder and its parameters, with positions.

    ``positions`` and ``cross_positions`` are the schemes that layers share in self-attention and in
    cross-attention, if they do.
    """

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        output_projection: nn.Module | None = None,
    ) -> None:
        self.placement, self.crossing = placement, crossing = Placement.in_decoder(cfg)
        # fairseq's constructor builds the layers in their order, but doesn't number them
        self.layer_indices = iter(range(cfg.decoder.layers))
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        del self.layer_indices
        self.positions = placement.build_shared().get("positions")
        self.cross_positions = None
        if not no_encoder_attn:
            self.cross_positions = crossing.build_shared().get("positions")
        self.limit = placement.limit(self.embed_positions)
        self.sampling = placement.sampling(self.limit)
        forward_context.replace_dropout(self)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        layer = PositionalDecoderLayer(
            cfg, self.placement, self.crossing, next(self.layer_indices), no_encoder_attn
        )
        return forward_context.wrap_layer(layer, cfg)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """As fairseq's: prev_output_tokens (B, T) -> features (B, T, d), and attention (B, T, S).

        With ``incremental_state`` only the last token is a query, and T is 1.
        """
        layout = Layout.of_self_attention(
            prev_output_tokens.eq(self.padding_idx),
            causal=not full_context_alignment,
            queries=None if incremental_state is None else 1,
        )
        check_length(layout, self.limit)
        source_positions: Tensor | None = None  # (B, S), where they are random
        if self.sampling is not None and self.training and incremental_state is None:
            source_positions = next(iter((encoder_out or {}).get("positions", ())), None)
            layout = self.sampling.draw(layout, len(prev_output_tokens), source_positions)
        tokens = prev_output_tokens[:, -layout.query_positions.size(1) :]  # of queries
        x = self._embed(tokens, layout).transpose(0, 1)  # (T, B, d)

        context = forward_context.create_context(
            self, layout, without_none(self.positions), len(prev_output_tokens)
        )
        source, crossing = None, None  # (S, B, d), and cross-attention's mask or context
        if encoder_out is not None and encoder_out["encoder_out"]:
            source = encoder_out["encoder_out"][0]
            padding_mask = encoder_out["encoder_padding_mask"][0]
            crossing = self._crossing(layout, padding_mask, source_positions)

        aligned = self.num_layers - 1 if alignment_layer is None else alignment_layer
        attention: Tensor | None = None
        states: list[Tensor | None] = [x]
        for index, layer in enumerate(self.layers):
            x, weights, _ = layer(
                x,
                source,
                crossing,
                incremental_state,
                self_attn_padding_mask=context,
                need_attn=index == aligned,
                need_head_weights=index == aligned,
            )
            states.append(x)
            if index == aligned and weights is not None:
                attention = weights[:alignment_heads].mean(dim=0)  # (H, B, T, S) -> (B, T, S)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)  # (B, T, d)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, {"attn": [attention], "inner_states": states}

    def _crossing(
        self, layout: Layout, source_padding_mask: Tensor, source_positions: Tensor | None
    ) -> Tensor | Context:
        """The (B, S) mask itself for stock cross-attention, a `Context` for ours."""
        if self.crossing.scheme is None:
            return hidden_keys(source_padding_mask)
        of_source = None
        if source_positions is not None:
            end = self.placement.config.position_sampling_length
            of_source = source_positions, end or self.crossing.shape.keys.positions
        return forward_context.create_context(
            self,
            Layout.of_cross_attention(layout, source_padding_mask, of_source),
            without_none(self.cross_positions),
            len(source_padding_mask),
            attention="encoder_attn",
        )

    def _embed(self, tokens: Tensor, layout: Layout) -> Tensor:
        """(B, T) -> (B, T, d), the layers' input."""
        x = self.embed_scale * self.embed_tokens(tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if self.embed_positions is not None:
            x = x + forward_context.input_positions(self.embed_positions, layout.query_positions)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def max_positions(self) -> int:
        """The longest output: `placement.UNLIMITED` tokens without absolute positions."""
        return self.limit.positions
