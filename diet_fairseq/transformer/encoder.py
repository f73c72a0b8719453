"""The encoder: it computes features of tokens and their segments."""

from collections.abc import Container
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..attention.compressed import Compression
from ..attention.packing import Packing
from ..positions import check_length
from ..positions.layout import Layout
from ..positions.scores import look_up
from ..positions.segments import check_segments
from .config import StackConfig
from .stack import Stack, embedding_width

# Notation: B sentences, T tokens, H heads, d model dimension, e width of the embeddings.


@dataclass
class EncoderOutput:
    """The result of an encoder.

    Attributes:
        features: (B, T, d)
        padding_mask: (B, T) bool, True at padding
        embedded: (B, T, e), the embeddings of tokens and segments without positions
        states: (B, T, d) each, the input of the first layer and the output of every layer; empty
            unless requested
        weights: layer -> (B, H, T, T), the attention weights of the requested layers
        positions: (B, T) int64, the positions if they are random; None: 0, 1, ...
    """

    features: Tensor
    padding_mask: Tensor
    embedded: Tensor
    states: list[Tensor] = field(default_factory=list)
    weights: dict[int, Tensor] = field(default_factory=dict)
    positions: Tensor | None = None


class Encoder(Stack):
    """An encoder, whose parameters have fairseq's names.

    ``positions``, ``segments`` and ``compress_layer`` are the schemes and the compression that
    layers share, or None. ``embed_segments`` embeds segments at the input, or is None.
    ``project_in`` maps embeddings of another width to the width of the layers, as in ELECTRA.
    """

    def __init__(self, config: StackConfig, embed_tokens: nn.Module) -> None:
        super().__init__(config, embed_tokens)
        positions, embedded = config.positions, embedding_width(embed_tokens)
        self.project_in: nn.Module | None = None
        if embedded != config.embed_dim:
            self.project_in = nn.Linear(embedded, config.embed_dim)
        self.compress_layer: Compression | None = None
        if positions.projection_sharing == "layer":
            self.compress_layer = config.build_compression()
        self.num_segments = positions.num_segments
        self.embed_segments: nn.Embedding | None = None
        if positions.segment_scheme == "input":
            self.embed_segments = nn.Embedding(positions.num_segments or 0, embedded)

    def build_embedding(self, width: int) -> None:
        self.build_input_parts(width)
        has_map = self.stack_config.has_embedding_map
        self.quant_noise = nn.Linear(width, width, bias=False) if has_map else None

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> EncoderOutput:
        """Encode tokens (B, T) with segments (B, T), see `encode`."""
        return self.encode(tokens, segments)

    def encode(
        self,
        tokens: Tensor | None,
        segments: Tensor | None = None,
        *,
        embeddings: Tensor | None = None,
        padding_mask: Tensor | None = None,
        need_states: bool = False,
        need_weights: Container[int] = (),
    ) -> EncoderOutput:
        """Encode sentences.

        Args:
            tokens: (B, T) int64
            segments: (B, T) int64, the segment of each token (default: 0)
            embeddings: (B, T, e), used instead of the embeddings of ``tokens``, before scaling
            padding_mask: (B, T) bool, True at padding (default: at padding tokens)
            need_states: also return `EncoderOutput.states`
            need_weights: the layers whose attention weights are returned

        Raises:
            UserError: a sentence is longer than the length limit, or segments are not valid
        """
        if padding_mask is None:
            padding_mask = tokens.eq(self.padding_idx)  # type: ignore[union-attr]  # (B, T)
        if segments is not None:
            segments = check_segments(segments, padding_mask, self.num_segments)
        layout = Layout.of_self_attention(padding_mask, segments=segments)
        check_length(layout, self.limit)
        if self.sampling is not None and self.training:
            layout = self.sampling.draw(layout, len(padding_mask))
        if embeddings is None:
            embeddings = self.embed_tokens(tokens)
        embedded = self.embed_scale * embeddings  # (B, T, e)
        if self.embed_segments is not None:
            if segments is None:
                segments = torch.zeros_like(padding_mask, dtype=torch.int64)
            embedded = embedded + look_up(segments, self.embed_segments.weight).to(embedded.dtype)
        x = self.add_positions(embedded, layout)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in is not None:
            x = self.project_in(x)
        if layout.padding_mask is not None:
            x = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
        x = x.transpose(0, 1)  # (T, B, d)

        packing = Packing.from_layout(layout)
        if packing is not None:
            x = packing.pack(x)  # (N, 1, d)
        contexts = self.create_contexts(layout, len(padding_mask), packing, x.dtype)
        states = [x] if need_states else []
        weights: dict[int, Tensor] = {}
        for index, layer in self.active_layers():
            x, attention, _ = layer(x, contexts[index], need_weights=index in need_weights)
            if need_states:
                states.append(x)
            if index in need_weights:
                weights[index] = attention
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        if packing is not None:
            x, *states = map(packing.unpack, (x, *states))
        return EncoderOutput(
            features=x.transpose(0, 1),
            padding_mask=padding_mask,
            embedded=embedded,
            states=[state.transpose(0, 1) for state in states],
            weights=weights,
            positions=None if layout.indices is None else layout.key_positions,
        )
