"""The place of a stack's scheme: in every layer's attention, or once for all layers."""

from dataclasses import replace
from typing import Any

from ..attention.compressed import Compression
from ..config import PositionConfig
from ..errors import UserError
from ..positions import Limit, PositionScheme
from ..positions.sampling import PositionSampling
from .attention import LinformerAttention, PositionalAttention

#: the limit of encoders and decoders without absolute positions, as of fairseq's sinusoidal table
UNLIMITED = int(1e5)


class Placement:
    """The scheme of one kind of attention in a stack, shared by its layers or not."""

    def __init__(
        self,
        config: PositionConfig,
        heads: int,
        embed_dim: int,
        queries: Limit,
        keys: Limit,
        causal: bool = False,
        cross: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        """``options``: fairseq's options of the attention, which are the same in all layers."""
        self.config = config
        self.options = options or {}
        self.width, self.heads = embed_dim, heads
        self.scheme = config.scheme_in(cross)
        where = {"causal": causal, "cross": cross}
        self.shape = config.attention_shape(heads, embed_dim, queries, keys, **where)

    @staticmethod
    def in_encoder(cfg: Any) -> "Placement":
        """The placement in the self-attention of an encoder with fairseq's options ``cfg``."""
        flag = "--max-positions" if hasattr(cfg, "max_positions") else "--max-source-positions"
        limit = Limit(cfg.max_source_positions, flag)
        return Placement(
            PositionConfig.of(cfg),
            cfg.encoder.attention_heads,
            cfg.encoder.embed_dim,
            queries=limit,
            keys=limit,
            options={"self_attention": True, **_options(cfg)},
        )

    @staticmethod
    def in_decoder(cfg: Any) -> tuple["Placement", "Placement"]:
        """The placements in a decoder's self-attention and cross-attention."""
        config = PositionConfig.of(cfg)
        if config.scheme.compressed:
            raise UserError(
                f"--position-scheme {config.position_scheme} compresses all keys, later ones too, "
                "so no decoder can have it: take an encoder, or another scheme"
            )
        heads, embed_dim = cfg.decoder.attention_heads, cfg.decoder.embed_dim
        source = Limit(cfg.max_source_positions, "--max-source-positions")
        target = Limit(cfg.max_target_positions, "--max-target-positions")
        width = cfg.encoder.embed_dim
        options = {"self_attention": True, **_options(cfg)}
        crossing = {"encoder_decoder_attention": True, "kdim": width, "vdim": width} | _options(cfg)
        return (
            Placement(config, heads, embed_dim, target, target, causal=True, options=options),
            Placement(config, heads, embed_dim, target, source, cross=True, options=crossing),
        )

    def build_for_layer(self, index: int) -> dict[str, PositionScheme]:
        """The schemes ``positions`` and ``segments`` of one layer alone, where it has them."""
        if self.config.position_sharing == "layer":
            return {}
        return self.config.build(replace(self.shape, layer=index), self.config.position_gain)

    def build_shared(self) -> dict[str, PositionScheme]:
        """The schemes that all layers share."""
        if self.config.position_sharing != "layer":
            return {}
        return self.config.build(self.shape, self.config.position_gain)

    def limit(self, embed_positions: Any) -> Limit:
        """The length limit of inputs and its flag; relative schemes have no limit."""
        queries = self.shape.queries
        positions = queries.positions if self.config.scheme.absolute else UNLIMITED
        if embed_positions is not None:
            positions = min(queries.positions, embed_positions.max_positions)
        return Limit(positions, queries.flag)

    def sampling(self, limit: Limit) -> PositionSampling | None:
        """The sampling of positions in training, in a stack with this limit; None: there is none.

        Raises:
            UserError: it would draw positions that a table doesn't have
        """
        kind, length = self.config.position_sampling, self.config.position_sampling_length
        if kind in (None, "none"):
            return None
        if length is not None and length > limit.positions:
            raise UserError(
                f"--position-sampling-length {length} must not exceed {limit.flag} "
                f"{limit.positions}: lower it, or train with a larger {limit.flag}"
            )
        return PositionSampling(kind, length or min(limit.positions, self.shape.queries.positions))

    def build_attention(self, index: int) -> PositionalAttention:
        """The attention of the layer of this index, from 0."""
        kind: type[PositionalAttention] = PositionalAttention
        options = self.options
        if self.config.scheme.compressed:
            kind, options = LinformerAttention, options | self._build_compressions()
        return kind(self.width, self.heads, **self.build_for_layer(index), **options)

    def build_shared_compression(self) -> Compression | None:
        """The compression that all layers share, where they share one."""
        return self._build_compression() if self.config.projection_sharing == "layer" else None

    def _build_compressions(self) -> dict[str, Compression]:
        """The compressions ``compress_k`` and ``compress_v`` of one layer, where it has them."""
        names = {"none": ("compress_k", "compress_v"), "key-value": ("compress_k",)}
        sharing = self.config.projection_sharing or "none"
        return {name: self._build_compression() for name in names.get(sharing, ())}

    def _build_compression(self) -> Compression:
        queries, keys = self.shape.queries.positions, self.shape.keys.positions
        return Compression(queries, keys, self.config.position_start)


def _options(cfg: Any) -> dict[str, Any]:
    """The options that fairseq's layers give their attention."""
    return {
        "dropout": cfg.attention_dropout,
        "q_noise": cfg.quant_noise.pq,
        "qn_block_size": cfg.quant_noise.pq_block_size,
    }
