"""Configurations: fairseq's model options and the position options."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.modeling_outputs import Seq2SeqModelOutput

from ..config import (
    PositionConfig,
    add_encoder_defaults,
    check_names_and_types,
    select_position_options,
)
from ..errors import MAX_UNTRUSTED_VALUES, UserError
from ..files import read_json
from ..positions import Limit
from ..transformer import StackConfig

logger = logging.getLogger(__name__)

#: name of the cache of keys and values in model outputs; transformers 5.24 renamed it
CACHE = "cache" if hasattr(Seq2SeqModelOutput, "cache") else "past_key_values"
#: part of the name of a size, or of a dropout, in a configuration -> its largest value
LARGEST_SIZES = {
    **MAX_UNTRUSTED_VALUES,
    "vocab_size": 1 << 28, "embed_dim": 1 << 20, "layers": 1 << 14, "heads": 1 << 14,
    "position_rank": 1 << 20, "position_buckets": 1 << 20, "projection_length": 1 << 20,
    "num_labels": 1 << 16, "drop": 1,
}  # fmt: skip
#: keys of config.json by which transformers chooses code, which it may download, or other files
CODE_KEYS = (
    "attn_implementation", "_attn_implementation", "experts_implementation",
    "_experts_implementation", "auto_map", "fusion_config", "transformers_weights",
)  # fmt: skip
#: keys of config.json of models whose weights are not plain tensors
QUANTIZATION_KEYS = ("quantization_config", "compression_config")
#: default gain of the scores of per-head segments
SEGMENT_GAIN = 30.0
#: sizes of an encoder or a decoder, without the prefix ``encoder_`` or ``decoder_``
SIZES = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before")


def find_unreasonable_size(values: Mapping[str, Any], largest: Mapping[str, int]) -> str | None:
    """An error text for the first size that is negative or above ``largest``, or None."""
    for name, value in values.items():
        for part, most in largest.items():
            if part in name and isinstance(value, int | float) and not 0 <= value <= most:
                return f"{name} must be from 0 to {most:,}, but is {value}"
    return None


def read_values(path: Path, largest: Mapping[str, int], advice: str) -> dict[str, Any]:
    """The values of a folder's ``config.json`` without `CODE_KEYS`.

    Raises:
        UserError: the file is not a JSON object, a size is above ``largest``, or the folder is
            quantised
    """
    values = read_json(path, advice=advice)
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a JSON object: {advice}")
    if fault := find_unreasonable_size(values, largest):
        raise UserError(f"{path}: {fault}: {advice}")
    for key in QUANTIZATION_KEYS:
        if values.get(key) is not None:
            raise UserError(
                f"{path} has {key}, but a quantised model can't be imported: give the folder of "
                "the model before quantisation"
            )
    return {key: value for key, value in values.items() if key not in CODE_KEYS}


@strict
class DietConfig(PreTrainedConfig):
    """Options that encoders and encoder-decoder models share, under fairseq's names.

    Attributes:
        position_scheme: a key of `SCHEMES`
        position_options: further fields of `PositionConfig`, such as ``position_clip`` (default:
            the defaults of ``roberta_<scheme>`` and ``transformer_<scheme>``)
        segment_gain: the gain of the scores of per-head segments; None: `SEGMENT_GAIN`
        embedding_dim: width of token embeddings; None: the encoder's width
        layer_norm_eps: epsilon of LayerNorm
    """

    attribute_map: ClassVar = {
        "hidden_size": "encoder_embed_dim",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "intermediate_size": "encoder_ffn_embed_dim",
        "max_position_embeddings": "max_source_positions",
    }

    position_scheme: str = "sinusoidal"
    position_options: dict | None = None
    segment_gain: float | int | None = None
    vocab_size: int = 8000
    encoder_layers: int = 6
    encoder_embed_dim: int = 512
    encoder_ffn_embed_dim: int = 2048
    encoder_attention_heads: int = 8
    encoder_normalize_before: bool = False
    encoder_final_norm: bool = False
    max_source_positions: int = 1024
    embedding_dim: int | None = None
    activation_fn: str = "relu"
    layernorm_embedding: bool = False
    layer_norm_eps: float = 1e-5
    scale_embedding: bool = True
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    initializer_range: float = 0.02
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        """Set the other options, and check the options of positions and the sizes.

        Raises:
            UserError: an option is not valid, or does not fit the others
        """
        options = select_position_options(kwargs)
        if options and self.transformers_version is not None:
            # version 0.4 and before ignored and saved them
            logger.warning("config.json: ignoring %s beside position_options", ", ".join(options))
        elif options:
            check_names_and_types(options)
            raise UserError(
                f"{' and '.join(options)} must be in position_options: write "
                f"position_options={options}"
            )
        super().__post_init__(**kwargs)
        self.check_stacks()

    def check_stacks(self) -> None:
        """Refuse options that the encoder or the decoder can't have."""
        self.stack("encoder")

    def validate_sizes(self) -> None:
        """Refuse unreasonable sizes before memory is allocated."""
        values = {**vars(self), **(self.position_options or {})}
        if fault := find_unreasonable_size(values, LARGEST_SIZES):
            raise ValueError(fault)

    @property
    def positions(self) -> PositionConfig:
        """The position options; a `UserError` if one is not valid."""
        is_saved = self.transformers_version is not None
        return PositionConfig.from_options(self.position_scheme, self.position_options, is_saved)

    def stack(self, side: str) -> StackConfig:
        """The sizes and options of the ``side``, "encoder" or "decoder".

        Raises:
            UserError: a position option is not valid, or sizes contradict one another
        """
        layers, width, ffn_width, heads, normalize_before = (
            getattr(self, f"{side}_{name}") for name in SIZES
        )
        limit = "max_source_positions" if side == "encoder" else "max_target_positions"
        return StackConfig(
            self.positions,
            layers,
            width,
            ffn_width,
            heads,
            Limit(getattr(self, limit), limit),
            is_decoder=side == "decoder",
            source=self.stack("encoder") if side == "decoder" else None,
            normalize_before=normalize_before,
            final_norm=getattr(self, f"{side}_final_norm"),
            layernorm_embedding=self.layernorm_embedding,
            layer_norm_eps=self.layer_norm_eps,
            scale_embedding=self.scale_embedding,
            activation=ACT2FN[self.activation_fn],
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation_dropout=self.activation_dropout,
            padding=self.pad_token_id or 0,
            segment_gain=SEGMENT_GAIN if self.segment_gain is None else self.segment_gain,
        )


@strict
class DietEncoderConfig(DietConfig):
    """An encoder: fairseq's ``roberta_<scheme>``, ``bert_<scheme>``, ``electra_<scheme>``.

    Attributes:
        pooler: whether the encoder has BERT's pooler
        pooler_dropout: dropout of classification heads
        trained_length: length in tokens of the longest training inputs, beyond which the encoder
            warns; None: ``max_source_positions``
        max_text_length: ``max_position_embeddings``, from which other libraries derive the length
            at which they cut texts; None: ``max_source_positions``
    """

    model_type = "diet_encoder"
    attribute_map: ClassVar = {
        name: option
        for name, option in DietConfig.attribute_map.items()
        if name != "max_position_embeddings"
    }

    activation_fn: str = "gelu"
    layernorm_embedding: bool = True
    scale_embedding: bool = False
    encoder_layers: int = 12
    encoder_embed_dim: int = 768
    encoder_ffn_embed_dim: int = 3072
    encoder_attention_heads: int = 12
    max_source_positions: int = 512
    pooler: bool = False
    pooler_activation_fn: str = "tanh"
    pooler_dropout: float | int = 0.0
    trained_length: int | None = None
    max_text_length: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.transformers_version is None:
            # a saved configuration has its version; it states all options, or was made by version
            # 0.4 or before, when it had the defaults of translation models
            self.position_options = (
                add_encoder_defaults(self.position_scheme, self.position_options) or None
            )
        super().__post_init__(**kwargs)

    def check_stacks(self) -> None:
        super().check_stacks()
        self.positions.check_no_cross_attention()

    @property
    def max_position_embeddings(self) -> int:
        """The length at which other libraries cut texts; setting it sets the positions' number."""
        return self.max_text_length or self.max_source_positions

    @max_position_embeddings.setter
    def max_position_embeddings(self, value: int) -> None:
        self.max_source_positions = value

    @property
    def type_vocab_size(self) -> int:
        """The number of segments."""
        return self.positions.num_segments or 0


@strict
class DietTransformerConfig(DietConfig):
    """An encoder and a decoder: fairseq's ``transformer_<scheme>``.

    Attributes:
        vocab_size: size of the target vocabulary
        source_vocab_size: size of the source vocabulary; None: ``vocab_size``
        share_all_embeddings: whether encoder and decoder share their input embeddings
        share_decoder_input_output_embed: whether the decoder's input and output share embeddings
        decoder_output_bias: whether the output projection has a bias
    """

    model_type = "diet_transformer"
    keys_to_ignore_at_inference: ClassVar = [CACHE]

    source_vocab_size: int | None = None
    decoder_layers: int = 6
    decoder_embed_dim: int = 512
    decoder_ffn_embed_dim: int = 2048
    decoder_attention_heads: int = 8
    decoder_normalize_before: bool = False
    decoder_final_norm: bool = False
    max_target_positions: int = 1024
    share_all_embeddings: bool = True
    share_decoder_input_output_embed: bool = True
    decoder_output_bias: bool = False
    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = 2
    use_cache: bool = True

    def check_stacks(self) -> None:
        super().check_stacks()
        self.stack("decoder")
