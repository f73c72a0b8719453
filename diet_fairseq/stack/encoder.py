"""fairseq's encoder with positions in every layer's attention, and segments."""

from typing import Any

import torch
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules import LayerNorm
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from ..attention.context import present
from ..attention.packing import Packing
from ..positions import check_length
from ..positions.layout import Layout
from ..positions.segments import checked_segments
from ..positions.tables import look_up
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
        return self.placement.attention(self.index)


class PositionalEncoder(TransformerEncoderBase):
    """fairseq's encoder, its parameters, and what positions and segments add to them.

    ``positions``, ``segments`` and ``compress_layer`` are what its layers share, if anything;
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
        shared = placement.for_stack()
        self.positions, self.segments = shared.get("positions"), shared.get("segments")
        self.compress_layer = placement.compression_for_stack()
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

        ``segments`` (B, T) int64 says to which segment each token belongs; None: all to the first.
        """
        padding_mask = src_tokens.eq(self.padding_idx)  # (B, T)
        if segments is not None and self.num_segments is not None:
            segments = checked_segments(segments, src_tokens, self.num_segments)
        layout = Layout.of_self_attention(padding_mask, segments=segments)
        check_length(layout, self.limit)
        if self.sampling is not None and self.training:
            layout = self.sampling.draw(layout, len(src_tokens))
        if self.embed_segments is not None:
            ids = torch.zeros_like(src_tokens) if segments is None else segments
            added = look_up(ids, self.embed_segments.weight)  # (B, T, d)
            tokens = self.embed_tokens(src_tokens) if token_embeddings is None else token_embeddings
            # fairseq multiplies what it is given by the scale; segments are added as they are
            token_embeddings = tokens + (added / self.embed_scale).to(tokens.dtype)
        positions = None if layout.numbers is None else layout.key_positions
        x, embedded = self.forward_embedding(src_tokens, token_embeddings, positions)  # (B, T, d)
        if self.project_in is not None:
            x = self.project_in(x)
        if layout.padding_mask is not None:
            x = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
        x = x.transpose(0, 1)  # (T, B, d)

        packing = Packing.of(layout)
        if packing is not None:
            x = packing.pack(x)  # (N, 1, d)
        shared = present(self.positions, self.segments)
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
        return {
            "encoder_out": [x],  # (T, B, d)
            "encoder_padding_mask": [padding_mask],  # (B, T)
            "encoder_embedding": [embedded],  # (B, T, d)
            "encoder_states": states,  # of (T, B, d)
            "fc_results": [],
            "src_tokens": [],
            # of `sampling`, for cross-attention
            **({} if positions is None else {"positions": [positions]}),  # (B, T)
            "src_lengths": [(~padding_mask).sum(dim=1, dtype=torch.int32).unsqueeze(1)],  # (B, 1)
        }

    def forward_embedding(
        self,
        src_tokens: Tensor,
        token_embedding: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As fairseq's, with the table's positions (B, T) where they are not 0, 1, ..."""
        if positions is None or self.embed_positions is None:
            return super().forward_embedding(src_tokens, token_embedding)
        tokens = self.embed_tokens(src_tokens) if token_embedding is None else token_embedding
        embedded = self.embed_scale * tokens
        x = embedded + forward_context.input_positions(self.embed_positions, positions)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = self.dropout_module(x)
        return x if self.quant_noise is None else self.quant_noise(x), embedded

    def max_positions(self) -> int:
        """The length of the longest input; without absolute positions it is not limited."""
        return self.limit.positions
