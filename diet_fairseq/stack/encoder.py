"""fairseq's encoder with positions in every layer's attention, and segments."""

from typing import Any

import torch
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules import LayerNorm
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from ..attention.context import without_none
from ..attention.packing import Packing
from ..positions import check_length
from ..positions.layout import Layout
from ..positions.scores import look_up
from ..positions.segments import checked_segments
from . import forward_context
from .attention import PositionalAttention
from .placement import Placement


class PositionalEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's layer around our attention; ``encoder_padding_mask`` carries the `Context`."""

    def __init__(self, cfg: Any, placement: Placement, index: int) -> None:
        # before fairseq's constructor, which builds the attention
        self.placement, self.index = placement, index
        super().__init__(cfg)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> PositionalAttention:
        return self.placement.build_attention(self.index)


class PositionalEncoder(TransformerEncoderBase):
    """fairseq's encoder and its parameters, with positions and segments.

    ``positions``, ``segments`` and ``compress_layer`` are those that layers share, if they do;
    ``embed_segments`` are the segments at the input, (S, d), if they act there. ``project_in``
    follows embeddings that are not as wide as the layers, as in ELECTRA.
    """

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        self.placement = placement = Placement.in_encoder(cfg)
        # fairseq's constructor builds the layers in their order, but doesn't number them
        self.layer_indices = iter(range(cfg.encoder.layers))
        super().__init__(cfg, dictionary, embed_tokens)
        del self.layer_indices
        width, embedded = cfg.encoder.embed_dim, embed_tokens.embedding_dim
        self.project_in = nn.Linear(embedded, width) if embedded != width else None
        if cfg.encoder.normalize_before:
            self.layer_norm = LayerNorm(width)
        shared = placement.build_shared()
        self.positions, self.segments = shared.get("positions"), shared.get("segments")
        self.compress_layer = placement.build_shared_compression()
        self.limit = placement.limit(self.embed_positions)
        self.sampling = placement.sampling(self.limit)
        self.num_segments = placement.config.num_segments
        self.embed_segments = None
        if placement.config.segment_scheme == "input":
            self.embed_segments = nn.Embedding(self.num_segments or 0, embed_tokens.embedding_dim)
        forward_context.replace_dropout(self)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        layer = PositionalEncoderLayer(cfg, self.placement, next(self.layer_indices))
        return forward_context.wrap_layer(layer, cfg)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """As fairseq's: src_tokens (B, T) -> its dictionary, encoder_out (T, B, d) and the rest.

        ``segments`` (B, T) int64 are the segments of tokens; None: all tokens are in the first.
        """
        padding_mask = src_tokens.eq(self.padding_idx)  # (B, T)
        if segments is not None and self.num_segments is not None:
            segments = checked_segments(segments, src_tokens, self.num_segments)
        layout = Layout.of_self_attention(padding_mask, segments=segments)
        check_length(layout, self.limit)
        if self.sampling is not None and self.training:
            layout = self.sampling.draw(layout, len(src_tokens))
        tokens = self.embed_tokens(src_tokens) if token_embeddings is None else token_embeddings
        embedded = self.embed_scale * tokens  # (B, T, d)
        if self.embed_segments is not None:
            ids = torch.zeros_like(src_tokens) if segments is None else segments
            embedded = embedded + look_up(ids, self.embed_segments.weight).to(embedded.dtype)
        x = self._embed(embedded, layout)
        if layout.padding_mask is not None:
            x = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
        x = x.transpose(0, 1)  # (T, B, d)

        packing = Packing.of(layout)
        if packing is not None:
            x = packing.pack(x)  # (N, 1, d)
        shared = without_none(self.positions, self.segments)
        context = forward_context.create_context(self, layout, shared, len(src_tokens), packing)
        states = [x] if return_all_hiddens else []
        for layer in self.layers:
            x = layer(x, encoder_padding_mask=context)
            if return_all_hiddens:
                states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        if packing is not None:
            x, *states = map(packing.unpack, (x, *states))
        # random positions, for cross-attention
        positions = {} if layout.numbers is None else {"positions": [layout.key_positions]}
        return {
            "encoder_out": [x],  # (T, B, d)
            "encoder_padding_mask": [padding_mask],  # (B, T)
            "encoder_embedding": [embedded],  # (B, T, d)
            "encoder_states": states,  # of (T, B, d)
            "fc_results": [],
            "src_tokens": [],
            **positions,  # (B, T)
            "src_lengths": [(~padding_mask).sum(dim=1, dtype=torch.int32).unsqueeze(1)],  # (B, 1)
        }

    def _embed(self, x: Tensor, layout: Layout) -> Tensor:
        """Embedded tokens and segments (B, T, d) -> the layers' input, with positions."""
        if self.embed_positions is not None:
            x = x + forward_context.input_positions(self.embed_positions, layout.query_positions)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = self.dropout_module(x)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        return x if self.project_in is None else self.project_in(x)

    def max_positions(self) -> int:
        """The longest input: `placement.UNLIMITED` tokens without absolute positions."""
        return self.limit.positions
