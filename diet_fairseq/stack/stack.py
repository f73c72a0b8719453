"""All hooks into fairseq's transformer, and only hooks: positions reach every layer's attention."""

from dataclasses import replace
from typing import Any

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn

from ..attention.compressed import Compression, LinformerAttention, projection_length
from ..attention.dropout import quicken
from ..attention.multihead import Context, PositionalAttention, Schemes, Term, present
from ..attention.packing import Packing
from ..config import PositionConfig
from ..errors import UserError
from ..positions import AttentionShape, Limit, PositionScheme, check_length
from ..positions.base import look_up
from ..positions.layout import Layout
from ..positions.segments import SegmentScores, checked_segments

#: what encoders and decoders without an absolute table accept: as fairseq's sinusoidal table says
UNLIMITED = int(1e5)


class Placement:
    """Which scheme one kind of attention has, and where: in every layer, or once for all."""

    def __init__(
        self,
        config: PositionConfig,
        heads: int,
        embed_dim: int,
        queries: Limit,
        keys: Limit,
        causal: bool = False,
        cross: bool = False,
    ) -> None:
        if embed_dim % heads:
            raise UserError(
                f"a width of {embed_dim} can't be split among {heads} attention heads: change "
                "--encoder-embed-dim or --encoder-attention-heads, or the decoder's"
            )
        self.config = config
        self.scheme: type[PositionScheme] | None = config.scheme
        if cross:
            self.scheme = config.scheme.cross if config.position_cross_attention else None
        elif not config.scheme.in_attention:
            self.scheme = None
        if config.scheme.compressed:
            if causal or cross:
                raise UserError(
                    f"the position scheme {config.position_scheme} compresses all keys, later ones "
                    "too, so no decoder can have it: take --arch "
                    f"roberta_{config.position_scheme} or bert_{config.position_scheme}, or "
                    "another scheme"
                )
            length = projection_length(config.projection_length, queries)
            keys = Limit(length, "--projection-length")
        self.shape = AttentionShape(
            heads=1 if config.position_sharing == "head" else heads,
            head_dim=embed_dim // heads,
            embed_dim=embed_dim,
            queries=queries,
            keys=keys,
            causal=causal,
            cross=cross,
        )

    @staticmethod
    def in_encoder(cfg: Any) -> "Placement":
        flag = "--max-positions" if hasattr(cfg, "max_positions") else "--max-source-positions"
        limit = Limit(cfg.max_source_positions, flag)
        return Placement(
            PositionConfig.of(cfg),
            cfg.encoder.attention_heads,
            cfg.encoder.embed_dim,
            queries=limit,
            keys=limit,
        )

    @staticmethod
    def in_decoder(cfg: Any, cross: bool = False) -> "Placement":
        source = Limit(cfg.max_source_positions, "--max-source-positions")
        target = Limit(cfg.max_target_positions, "--max-target-positions")
        return Placement(
            PositionConfig.of(cfg),
            cfg.decoder.attention_heads,
            cfg.decoder.embed_dim,
            queries=target,
            keys=source if cross else target,
            causal=not cross,
            cross=cross,
        )

    def for_layer(self) -> dict[str, PositionScheme]:
        """``positions`` and ``segments`` of one layer, where there are such."""
        return {} if self.config.position_sharing == "layer" else self._build()

    def for_stack(self) -> dict[str, PositionScheme]:
        """The same, of all layers together."""
        return self._build() if self.config.position_sharing == "layer" else {}

    def limit(self, embed_positions: Any) -> Limit:
        """How long an input may be, and by which flag: tables of offsets go on for ever."""
        absolute = self.config.scheme.absolute
        flag = self.shape.queries.flag
        positions = self.shape.queries.positions if absolute else UNLIMITED
        if embed_positions is not None:
            positions = min(self.shape.queries.positions, embed_positions.max_positions)
        return Limit(positions, flag)

    def attention(self, embed_dim: int, num_heads: int, **options: Any) -> PositionalAttention:
        kind: type[PositionalAttention] = PositionalAttention
        if self.config.scheme.compressed:
            kind, options = LinformerAttention, options | self._compressions()
        return kind(
            embed_dim,
            num_heads,
            **self.for_layer(),
            score_terms=1 if self.scheme is None else self.scheme.score_terms,
            backend=self.config.attention_backend,
            **options,
        )

    def compression_for_stack(self) -> Compression | None:
        """What compresses the keys and values of all layers together."""
        return self._compression() if self.config.projection_sharing == "layer" else None

    def _compressions(self) -> dict[str, Compression]:
        """``compress_k`` and ``compress_v`` of one layer, where there are such."""
        names = {"none": ("compress_k", "compress_v"), "key-value": ("compress_k",)}
        sharing = self.config.projection_sharing or "none"
        return {name: self._compression() for name in names.get(sharing, ())}

    def _compression(self) -> Compression:
        return Compression(self.shape.queries.positions, self.shape.keys.positions)

    def _build(self) -> dict[str, PositionScheme]:
        built: dict[str, PositionScheme] = {}
        if self.scheme is not None:
            built["positions"] = self.config.build(self.shape, self.scheme)
        if self.config.segment_scheme == "per-head":
            gain = {} if self.config.position_gain is None else {"gain": self.config.position_gain}
            built["segments"] = SegmentScores(self.shape, self.config.num_segments or 0, **gain)
        return built


class PositionalEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's layer around our attention; ``encoder_padding_mask`` carries the `Context`."""

    def build_self_attention(self, embed_dim: int, cfg: Any) -> PositionalAttention:
        return Placement.in_encoder(cfg).attention(
            embed_dim,
            cfg.encoder.attention_heads,
            dropout=cfg.attention_dropout,
            self_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )


class PositionalDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's layer around our attention; its padding masks carry the `Context`."""

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> PositionalAttention:
        return Placement.in_decoder(cfg).attention(
            embed_dim,
            cfg.decoder.attention_heads,
            dropout=cfg.attention_dropout,
            self_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        placement = Placement.in_decoder(cfg, cross=True)
        if placement.scheme is None:
            return super().build_encoder_attention(embed_dim, cfg)
        return placement.attention(
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            dropout=cfg.attention_dropout,
            encoder_decoder_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """What fairseq does to every layer: activation checkpointing and FSDP, where asked for."""
    if not cfg.checkpoint_activations:
        return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
    layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0)


def refuse_recording() -> None:
    """What a recording of one batch leaves out is needed for another, whose padding differs."""
    exporting = getattr(torch.compiler, "is_exporting", bool)  # since PyTorch 2.7
    if torch.jit.is_tracing() or exporting():
        raise UserError(
            "torch.export, torch.jit.trace and ONNX record what is done for one batch, and models "
            "with position schemes do less for one without padding: use the model as it is, or "
            "torch.compile"
        )


def context_of(
    stack: "PositionalEncoder | PositionalDecoder",
    layout: Layout,
    shared: Schemes,
    packing: Packing | None = None,
    attention: str = "self_attn",
) -> Context:
    """The `Context` of one forward pass through a stack's layers, for this attention of theirs.

    What the layers share is computed for the backend that the first of them chooses, and all take
    that backend: the form of the term and what reads it can't differ.
    """
    context = Context(
        layout, shared, compress=getattr(stack, "compress_layer", None), packing=packing
    )
    if not shared or not len(stack.layers) or stack.cfg.checkpoint_activations:
        return context
    backend = getattr(stack.layers[0], attention).backend_for(shared, layout)
    return replace(context, term=Term.of(shared, layout, backend == "factors"), backend=backend)


class PositionalEncoder(TransformerEncoderBase):
    """fairseq's encoder, its parameters, and what positions and segments add to them.

    ``positions``, ``segments`` and ``compress_layer`` are what its layers share, if anything;
    ``embed_segments`` are the segments at the input, (S, d), if they act there.
    """

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        placement = Placement.in_encoder(cfg)
        shared = placement.for_stack()
        self.positions, self.segments = shared.get("positions"), shared.get("segments")
        self.compress_layer = placement.compression_for_stack()
        self.limit = placement.limit(self.embed_positions)
        self.num_segments = placement.config.num_segments
        self.embed_segments = None
        if placement.config.segment_scheme == "input":
            self.embed_segments = nn.Embedding(self.num_segments or 0, embed_tokens.embedding_dim)
        quicken(self)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        return wrap_layer(PositionalEncoderLayer(cfg), cfg)

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
        refuse_recording()
        padding_mask = src_tokens.eq(self.padding_idx)  # (B, T)
        if segments is not None and self.num_segments is not None:
            segments = checked_segments(segments, src_tokens, self.num_segments)
        layout = Layout.of_self_attention(padding_mask, segments=segments)
        check_length(layout, self.limit)
        if self.embed_segments is not None:
            ids = torch.zeros_like(src_tokens) if segments is None else segments
            embedded = look_up(ids, self.embed_segments.weight)  # (B, T, d)
            tokens = self.embed_tokens(src_tokens) if token_embeddings is None else token_embeddings
            token_embeddings = tokens + (embedded / self.embed_scale).to(tokens.dtype)
        x, embedded = self.forward_embedding(src_tokens, token_embeddings)  # (B, T, d)
        if layout.padding_mask is not None:
            x = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
        x = x.transpose(0, 1)  # (T, B, d)

        packing = Packing.of(layout)
        if packing is not None:
            x = packing.pack(x)  # (N, 1, d)
        shared = present(self.positions, self.segments)
        context = context_of(self, layout, shared, packing)
        states = [x]
        for layer in self.layers:
            x = layer(x, encoder_padding_mask=context)
            states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        states = states if return_all_hiddens else []
        if packing is not None:
            x, *states = map(packing.unpack, (x, *states))
        return {
            "encoder_out": [x],  # (T, B, d)
            "encoder_padding_mask": [padding_mask],  # (B, T)
            "encoder_embedding": [embedded],  # (B, T, d)
            "encoder_states": states,  # of (T, B, d)
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [(~padding_mask).sum(dim=1, dtype=torch.int32).unsqueeze(1)],  # (B, 1)
        }

    def max_positions(self) -> int:
        """The longest input; without an absolute table any length goes."""
        return self.limit.positions


class PositionalDecoder(TransformerDecoderBase):
    """fairseq's decoder, its parameters, and the schemes its layers share, if any.

    ``positions`` is self-attention's, ``cross_positions`` cross-attention's.
    """

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        output_projection: nn.Module | None = None,
    ) -> None:
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        placement, cross = Placement.in_decoder(cfg), Placement.in_decoder(cfg, cross=True)
        self.positions = placement.for_stack().get("positions")
        self.cross_positions = None if no_encoder_attn else cross.for_stack().get("positions")
        self.crosses = cross.scheme is not None
        self.limit = placement.limit(self.embed_positions)
        quicken(self)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return wrap_layer(PositionalDecoderLayer(cfg, no_encoder_attn), cfg)

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

        With ``incremental_state`` only the last token asks, and T is 1.
        """
        refuse_recording()
        layout = Layout.of_self_attention(
            prev_output_tokens.eq(self.padding_idx),
            causal=not full_context_alignment,
            queries=None if incremental_state is None else 1,
        )
        check_length(layout, self.limit)
        x = self._embed(prev_output_tokens, incremental_state).transpose(0, 1)  # (T, B, d)

        context = context_of(self, layout, present(self.positions))
        source, crossing = None, None  # (S, B, d), and what cross-attention must know
        if encoder_out is not None and encoder_out["encoder_out"]:
            source = encoder_out["encoder_out"][0]
            crossing = self._crossing(layout, encoder_out["encoder_padding_mask"][0])

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

    def _crossing(self, layout: Layout, source_padding_mask: Tensor) -> Tensor | Context:
        """Stock cross-attention takes the (B, S) mask itself, ours a `Context`."""
        if not self.crosses:
            return source_padding_mask
        crossing = Layout.of_cross_attention(layout, source_padding_mask)
        return context_of(self, crossing, present(self.cross_positions), attention="encoder_attn")

    def _embed(self, tokens: Tensor, incremental_state: Any) -> Tensor:
        """(B, T) -> (B, T, d); while decoding the last token alone, (B, 1, d)."""
        positions = None
        if self.embed_positions is not None:
            positions = self.embed_positions(tokens, incremental_state=incremental_state)
        if incremental_state is not None:
            tokens = tokens[:, -1:]
            positions = None if positions is None else positions[:, -1:]
        x = self.embed_scale * self.embed_tokens(tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = x + positions
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def max_positions(self) -> int:
        """The longest output; without an absolute table any length goes."""
        return self.limit.positions
