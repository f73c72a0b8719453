"""What a model is built from: fairseq's sizes and switches, and the options of the positions."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.modeling_outputs import Seq2SeqModelOutput

from ..checks import LARGEST
from ..config import PositionConfig
from ..errors import UserError
from ..positions import AttentionShape, Limit

#: transformers' name of the keys and values up to now, which its 5.24 changed
CACHE = "cache" if hasattr(Seq2SeqModelOutput, "cache") else "past_key_values"
#: parts of the names of sizes, and the largest values that a configuration may have
LARGEST_SIZES = {
    **LARGEST, "vocab_size": 1 << 28, "embed_dim": 1 << 20, "layers": 1 << 14, "heads": 1 << 14,
    "position_rank": 1 << 20, "position_buckets": 1 << 20, "projection_length": 1 << 20,
}  # fmt: skip


@dataclass(frozen=True)
class Stack:
    """The sizes of an encoder or a decoder."""

    layers: int
    width: int
    ffn_width: int
    heads: int
    normalize_before: bool
    final_norm: bool
    limit: Limit


@strict
class DietConfig(PreTrainedConfig):
    """What both kinds of models have; names are fairseq's where it has one.

    Attributes:
        position_scheme: a key of `SCHEMES`
        position_options: further fields of `PositionConfig`, such as ``position_clip``; what isn't
            there has its default
        segment_gain: the gain of per-head segments' scores; None: the default
        embedding_dim: width of token embeddings; None: the encoder's
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
    scale_embedding: bool = True
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    initializer_range: float = 0.02
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    tie_word_embeddings: bool = True

    def validate_sizes(self) -> None:
        """Refuse numbers that no model has, before anything of their size is made."""
        sizes = {**vars(self), **(self.position_options or {})}
        for name, value in sizes.items():
            for part, most in LARGEST_SIZES.items():
                if part in name and isinstance(value, int | float) and not value <= most:
                    raise ValueError(f"{name} must be at most {most:,}, but is {value}")

    @property
    def positions(self) -> PositionConfig:
        """The options in force, checked; a `UserError` names one that isn't allowed."""
        options = self.position_options or {}
        sampling = options.get("position_sampling")
        if sampling not in (None, "none"):
            raise UserError(
                f"position_sampling {sampling} is for training in fairseq: leave it out here"
            )
        return PositionConfig.of(Namespace(**options, position_scheme=self.position_scheme))

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """As transformers', without the file of code that a folder of version 0.2 names."""
        vars(self).pop("auto_map", None)
        super().save_pretrained(*args, **kwargs)

    def stack(self, side: str) -> Stack:
        """``side`` is "encoder" or "decoder"."""
        names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before")
        sizes: list[Any] = [getattr(self, f"{side}_{name}") for name in (*names, "final_norm")]
        positions = "max_source_positions" if side == "encoder" else "max_target_positions"
        layers, width, ffn_width, heads, normalize_before, final_norm = sizes
        limit = Limit(getattr(self, positions), positions)
        return Stack(layers, width, ffn_width, heads, normalize_before, final_norm, limit)

    def attention_shape(
        self, causal: bool = False, cross: bool = False, layer: int = 0
    ) -> AttentionShape:
        """What the schemes of one kind of attention are built from."""
        stack = self.stack("decoder" if causal or cross else "encoder")
        keys = self.stack("encoder").limit if cross else stack.limit
        where = {"causal": causal, "cross": cross, "layer": layer}
        return self.positions.attention_shape(stack.heads, stack.width, stack.limit, keys, **where)


@strict
class DietEncoderConfig(DietConfig):
    """An encoder: fairseq's ``roberta_<scheme>``, ``bert_<scheme>``, ``electra_<scheme>``.

    Attributes:
        pooler: whether there is one, as in BERT
        pooler_dropout: of heads that classify
    """

    model_type = "diet_encoder"

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

    @property
    def type_vocab_size(self) -> int:
        """The number of segments."""
        return self.positions.num_segments or 0


@strict
class DietTransformerConfig(DietConfig):
    """An encoder and a decoder: fairseq's ``transformer_<scheme>``.

    ``vocab_size`` is the target's.

    Attributes:
        source_vocab_size: None: the target's
        share_all_embeddings: the encoder reads with the decoder's matrix
        share_decoder_input_output_embed: the decoder writes with the matrix that it reads with
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
    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = 2
    use_cache: bool = True
