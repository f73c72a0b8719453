"""The sizes and options of an encoder or a decoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ..attention.compressed import Compression
from ..config import PositionConfig, add_encoder_defaults
from ..errors import UserError
from ..positions import AttentionShape, Limit, PositionScheme
from ..positions.options import Value
from ..positions.sampling import PositionSampling
from ..positions.segments import SegmentScores

#: default of PyTorch and fairseq; BERT has 1e-12
LAYER_NORM_EPS = 1e-5
#: length limit of encoders and decoders without absolute positions, as in fairseq's sinusoids
UNLIMITED = int(1e5)


@dataclass(frozen=True)
class StackConfig:
    """The sizes and options of an encoder or a decoder.

    Attributes:
        positions: the position options
        layers, embed_dim, ffn_embed_dim, heads: L, d, the width of the feed-forward layer, and H
        limit: the number of rows of absolute tables, and the flag that sets it
        is_decoder: whether queries see no later tokens
        source: the configuration of the encoder to which a decoder attends; None: layers have no
            cross-attention
        normalize_before: whether LayerNorm comes before each part of a layer (pre-norm)
        final_norm: whether a LayerNorm follows the last layer
        layernorm_embedding: whether a LayerNorm follows the embeddings
        layer_norm_eps: the number that LayerNorm adds to variances
        scale_embedding: whether embeddings are multiplied by sqrt(d)
        activation: the function in the feed-forward layer
        dropout, attention_dropout, activation_dropout: probabilities that an element is dropped
        layerdrop: the probability that a layer is skipped in training
        output_dim: the width of a decoder's output; None: d
        has_embedding_map: whether embeddings pass through another linear map (d, d), as in
            fairseq's models with quantization noise
        checkpoint_activations: whether layers keep only their input for the backward pass
        offload_activations: whether layers keep this input on the CPU
        padding: the index of the padding token
        segment_gain: the gain of the scores of per-head segments; None: the positions' gain
    """

    positions: PositionConfig
    layers: int
    embed_dim: int
    ffn_embed_dim: int
    heads: int
    limit: Limit
    is_decoder: bool = False
    source: "StackConfig | None" = None
    normalize_before: bool = False
    final_norm: bool = False
    layernorm_embedding: bool = False
    layer_norm_eps: float = LAYER_NORM_EPS
    scale_embedding: bool = True
    activation: Callable[[Tensor], Tensor] = torch.relu
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    layerdrop: float = 0.0
    output_dim: int | None = None
    has_embedding_map: bool = False
    checkpoint_activations: bool = False
    offload_activations: bool = False
    padding: int = 1
    segment_gain: float | None = None

    def __post_init__(self) -> None:
        side = "decoder" if self.is_decoder else "encoder"
        for name, size in {
            f"the {side}'s number of layers": self.layers,
            f"the {side}'s width": self.embed_dim,
            f"the {side}'s feed-forward width": self.ffn_embed_dim,
            f"the {side}'s number of attention heads": self.heads,
            self.limit.flag: self.limit.positions,
        }.items():
            if not isinstance(size, Integral) or size < 1:
                raise UserError(f"{name} must be an integer of at least 1, but is {size!r}")
        if self.is_decoder and self.positions.scheme.compressed:
            raise UserError(
                f"--position-scheme {self.positions.position_scheme} compresses all keys, future "
                "keys included, so a decoder can't have it: use an encoder, or another scheme"
            )
        if self.embed_dim % self.heads:
            raise UserError(
                f"the width must be a multiple of the {self.heads} attention heads, but is "
                f"{self.embed_dim}: change one of them"
            )
        if self.is_decoder:
            self.positions.check_no_segments("a translation model", "leave it out")
        self.attention_shape()  # checks the number of compressed keys
        if (pattern := self.positions.position_layers) is not None:
            kinds = {*pattern[: self.layers]}
            if len(kinds) == 1:
                raise UserError(
                    f"--position-layers {pattern} must make some of the "
                    f"{side}'s {self.layers} layers global and some local, but makes all "
                    f"{'global' if 'g' in kinds else 'local'}: use a shorter pattern"
                )

    @classmethod
    def for_scheme(
        cls,
        scheme: str,
        *,
        layers: int,
        embed_dim: int,
        heads: int,
        max_positions: int = 512,
        position_options: Mapping[str, Value] | None = None,
        **options: Any,
    ) -> "StackConfig":
        """The configuration of a `Transformer`, with the feed-forward width 4 d unless it is given.

        The defaults of position options are the defaults of ``transformer_<scheme>``. An encoder
        without a decoder has other defaults, see `for_encoder`.

        Args:
            scheme: a key of `SCHEMES`
            layers: L
            embed_dim: d
            heads: H
            max_positions: the number of rows of absolute tables
            position_options: such as ``{"position_rank": 32}``, see `config.position_options`
            options: any other attribute

        Raises:
            UserError: an option is not valid, or the scheme does not have it
        """
        positions = PositionConfig.from_options(scheme, position_options)
        limit = Limit(max_positions, "max_positions")
        options.setdefault("ffn_embed_dim", 4 * embed_dim)
        return cls(positions, layers, embed_dim, heads=heads, limit=limit, **options)

    @classmethod
    def for_encoder(
        cls,
        scheme: str,
        *,
        has_segments: bool = False,
        position_options: Mapping[str, Value] | None = None,
        **options: Any,
    ) -> "StackConfig":
        """The configuration of an encoder without a decoder, with RoBERTa's defaults.

        The defaults of position options are the defaults of ``roberta_<scheme>``: TUPE unties
        [CLS], and relative scores start with a peak of 6, without which training may stay on a
        plateau.

        Args:
            scheme: a key of `SCHEMES`
            has_segments: whether tokens have segments as in ``bert_<scheme>``
            position_options: as in `for_scheme`
            options: the other arguments of `for_scheme`

        Raises:
            UserError: an option is not valid, or the scheme or an encoder does not have it
        """
        defaults: dict[str, Any] = {
            "activation": torch.nn.functional.gelu,
            "layernorm_embedding": True,
            "scale_embedding": False,
            "attention_dropout": 0.1,
        }
        position_options = add_encoder_defaults(scheme, position_options, has_segments)
        config = cls.for_scheme(scheme, position_options=position_options, **defaults | options)
        config.positions.check_no_cross_attention()
        return config

    @property
    def length_limit(self) -> Limit:
        """The length limit of inputs in tokens; `UNLIMITED` without absolute positions."""
        positions, limit = self.positions, self.limit
        has_absolute_scheme = any(kind.scheme.absolute for kind in positions.layer_kinds)
        is_bounded = has_absolute_scheme or positions.position_input != "none"
        return Limit(min(limit.positions, UNLIMITED) if is_bounded else UNLIMITED, limit.flag)

    def at_layer(self, layer: int) -> "StackConfig":
        """The configuration of self-attention in one layer, which is local or global."""
        positions = self.positions.at_layer(layer)
        return self if positions is self.positions else replace(self, positions=positions)

    @property
    def layer_kinds(self) -> list["StackConfig"]:
        """The configurations of local layers and, if there are any, of global layers."""
        return [replace(self, positions=positions) for positions in self.positions.layer_kinds]

    @property
    def shares_schemes(self) -> bool:
        """Whether all layers share the schemes."""
        return self.positions.position_sharing == "layer"

    def attention_shape(self, is_cross: bool = False, layer: int = 0) -> AttentionShape:
        """The shape for which schemes are built, in self-attention or in cross-attention."""
        positions = self.positions
        keys = self.source.limit if is_cross and self.source is not None else self.limit
        if positions.scheme.compressed:
            length = positions.projection_length or max(1, keys.positions // 4)
            if length > keys.positions:
                raise UserError(
                    f"--projection-length must be at most {keys.flag} ({keys.positions}), but is "
                    f"{length}: lower it"
                )
            keys = Limit(length, "--projection-length")
        return AttentionShape(
            heads=1 if positions.position_sharing == "head" else self.heads,
            head_dim=self.embed_dim // self.heads,
            embed_dim=self.embed_dim,
            queries=self.limit,
            keys=keys,
            causal=self.is_decoder and not is_cross,
            cross=is_cross,
            layer=layer,
        )

    def build_schemes(self, is_cross: bool = False, layer: int = 0) -> dict[str, PositionScheme]:
        """New schemes of one attention, with the keys ``positions`` and ``segments`` as needed."""
        positions, shape = self.positions, self.attention_shape(is_cross, layer)
        schemes: dict[str, PositionScheme] = {}
        if (scheme := positions.scheme_in(is_cross)) is not None:
            schemes["positions"] = scheme.create(shape, **positions.constructor_options(scheme))
            positions.check_backend(schemes["positions"])
        if positions.segment_scheme == "per-head":
            gain = positions.position_gain if self.segment_gain is None else self.segment_gain
            options = {} if gain is None else {"gain": gain}
            schemes["segments"] = SegmentScores(shape, positions.num_segments or 0, **options)
        return schemes

    def build_compression(self) -> Compression:
        """A new compression of keys and values."""
        shape = self.attention_shape()
        queries, keys = shape.queries.positions, shape.keys.positions
        return Compression(queries, keys, self.positions.position_start)

    def build_sampling(self) -> PositionSampling | None:
        """The sampling of positions in training; None: there is none.

        Raises:
            UserError: the sampling would draw positions that a table doesn't have
        """
        kind, length = self.positions.position_sampling, self.positions.position_sampling_length
        if kind in (None, "none"):
            return None
        limit = self.length_limit
        if length is not None and length > limit.positions:
            raise UserError(
                f"--position-sampling-length {length} must not exceed {limit.flag} "
                f"{limit.positions}: lower it, or train with a larger {limit.flag}"
            )
        return PositionSampling(kind, length or min(limit.positions, self.limit.positions))
