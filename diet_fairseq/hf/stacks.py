"""The layers of encoders and decoders, with fairseq's parameter names."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    BaseModelOutputWithPooling,
)
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from ..attention.compressed import Compression
from ..attention.context import Context, Schemes, prepare, scores_of, without_none
from ..positions import Limit, PositionScheme, check_length
from ..positions.gain import ScoreParameters
from ..positions.layout import Layout, first_tokens
from ..positions.scores import look_up
from ..positions.segments import checked_segments
from .attention import DietAttention, compression_of, schemes_of
from .configuration import CACHE, DietConfig

# Notation: B sentences, T tokens, S source tokens, d model dimension.

#: parameters of other heads, which a file of weights may hold and a model ignores
OTHER_HEADS = (
    r"^(lm_head|classifier|classification_heads|qa_outputs|nsp_head|discriminator_head|generator)\."
)


class DietLayer(GradientCheckpointingLayer):
    """A layer of an encoder, or of a decoder, which has ``encoder_attn`` as well."""

    def __init__(self, config: DietConfig, layer_idx: int, decoder: bool = False) -> None:
        super().__init__()
        stack = config.stack("decoder" if decoder else "encoder")
        self.normalize_before = stack.normalize_before
        self.self_attn = DietAttention(config, layer_idx, causal=decoder)
        self.self_attn_layer_norm = nn.LayerNorm(stack.embed_dim)
        self.encoder_attn: Any = DietAttention(config, layer_idx, cross=True) if decoder else None
        self.encoder_attn_layer_norm = nn.LayerNorm(stack.embed_dim) if decoder else None
        self.fc1 = nn.Linear(stack.embed_dim, stack.ffn_embed_dim)
        self.fc2 = nn.Linear(stack.ffn_embed_dim, stack.embed_dim)
        self.final_layer_norm = nn.LayerNorm(stack.embed_dim)
        self.activation = ACT2FN[config.activation_fn]
        self.dropout = nn.Dropout(config.dropout)
        self.activation_dropout = nn.Dropout(config.activation_dropout)

    def forward(
        self,
        x: Tensor,
        context: Context,
        source: Tensor | None = None,
        crossing: Context | None = None,
        cache: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """(B, T, d) -> (B, T, d); ``source`` is (B, S, d)."""

        def add(sublayer: Callable[[Tensor], Tensor], norm: nn.Module, x: Tensor) -> Tensor:
            if self.normalize_before:
                return x + self.dropout(sublayer(norm(x)))
            return norm(x + self.dropout(sublayer(x)))

        def feed_forward(x: Tensor) -> Tensor:
            return self.fc2(self.activation_dropout(self.activation(self.fc1(x))))

        x = add(lambda x: self.self_attn(x, context, None, cache, **kwargs)[0],
                self.self_attn_layer_norm, x)  # fmt: skip
        if self.encoder_attn_layer_norm is not None:
            x = add(lambda x: self.encoder_attn(x, crossing, source, cache, **kwargs)[0],
                    self.encoder_attn_layer_norm, x)  # fmt: skip
        return add(feed_forward, self.final_layer_norm, x)


class DietPreTrainedModel(PreTrainedModel):
    """Base class of all our models."""

    config: DietConfig
    config_class: Any = DietConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _skip_keys_device_placement = [CACHE]  # noqa: RUF012
    _supports_sdpa = True
    _supports_attention_backend = True
    # neither accepts an attention bias
    _supports_flash_attn = False
    _supports_flex_attn = False
    _keys_to_ignore_on_load_unexpected = [OTHER_HEADS]  # noqa: RUF012

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state without gains, which are in the configuration.

        The state of a module around the model has them, as that module loads it by itself.
        """
        state = super().state_dict(*args, **kwargs)
        if kwargs.get("destination") is None:
            for name in [name for name in state if name.endswith(".gain")]:
                del state[name]
        return state

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Load a state with the model's gains: a scheme reads a state without gain as gain 1."""
        gains = {
            f"{name}.gain": torch.tensor(module.gain, dtype=torch.float64)
            for name, module in self.named_modules()
            if isinstance(module, ScoreParameters)
        }
        return super().load_state_dict({**state_dict, **gains}, *args, **kwargs)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, Compression):
            init.copy_(module.weight, module.initial())
        elif isinstance(module, PositionScheme):
            # those of a new scheme of the same kind, which may be a part of another
            shape = module.shape
            schemes = nn.ModuleDict(schemes_of(self.config, shape.causal, shape.cross, shape.layer))
            new = next(part for part in schemes.modules() if type(part) is type(module))
            for name, parameter in module.named_parameters():
                init.copy_(parameter, new.get_parameter(name))
            for name, buffer in module.named_buffers():
                init.copy_(buffer, new.get_buffer(name))
        else:
            super()._init_weights(module)


class DietStack(DietPreTrainedModel):
    """Base class of encoder and decoder: embeddings, layers and shared schemes."""

    def __init__(self, config: DietConfig, vocabulary: int, decoder: bool = False) -> None:
        super().__init__(config)
        sizes = config.stack("decoder" if decoder else "encoder")
        positions = config.positions
        width, self.pad = sizes.embed_dim, config.pad_token_id or 0
        embedded = width if decoder else config.embedding_dim or width
        self.embed_tokens = nn.Embedding(vocabulary, embedded, self.pad)
        self.scale = math.sqrt(embedded) if config.scale_embedding else 1.0
        self.embed_positions = None
        if positions.position_input == "learned":
            rows = sizes.limit.positions + self.pad + 1
            self.embed_positions = nn.Embedding(rows, embedded, self.pad)
        self.sinusoidal = positions.position_input == "sinusoidal"
        self.embed_segments = None
        if positions.segment_scheme == "input":
            self.embed_segments = nn.Embedding(positions.num_segments or 0, embedded)
        self.num_segments = positions.num_segments
        self.layernorm_embedding = nn.LayerNorm(embedded) if config.layernorm_embedding else None
        self.project_in = nn.Linear(embedded, width) if embedded != width else None
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(DietLayer(config, n, decoder) for n in range(sizes.layers))
        self.layer_norm = nn.LayerNorm(width) if sizes.final_norm else None
        share = positions.position_sharing == "layer"
        shared = schemes_of(config, causal=decoder) if share else {}
        self.positions, self.segments = shared.get("positions"), shared.get("segments")
        crossing = schemes_of(config, cross=True) if share and decoder else {}
        self.cross_positions = crossing.get("positions")
        self.compress_layer = (
            compression_of(config) if positions.projection_sharing == "layer" else None
        )
        bounded = positions.scheme.absolute or self.embed_positions is not None
        self.temperature = positions.temperature
        acts = positions.scheme_in(cross=True) is not None
        self.cross_temperature = positions.temperature if acts else 1.0
        self.limit = sizes.limit if bounded else Limit(int(1e5), sizes.limit.flag)
        self.gradient_checkpointing = False

    def embed(
        self,
        tokens: Tensor | None,
        embeddings: Tensor | None,
        layout: Layout,
        segments: Tensor | None = None,
    ) -> Tensor:
        """(B, T) tokens, or their unscaled embeddings (B, T, d) -> (B, T, d).

        Raises:
            ValueError: both are given
        """
        if tokens is not None and embeddings is not None:
            raise ValueError("input_ids and inputs_embeds are two inputs: give one of them")
        check_length(layout, self.limit)
        x = self.embed_tokens(tokens) if embeddings is None else embeddings
        x = self.scale * x
        if self.embed_segments is not None:
            if segments is None:
                segments = torch.zeros(x.shape[:2], dtype=torch.int64, device=x.device)
            x = x + look_up(segments, self.embed_segments.weight).to(x.dtype)
        rows = layout.query_positions + self.pad + 1  # (B|1, T), fairseq's
        if self.embed_positions is not None:
            # positions of padding may exceed the table
            x = x + self.embed_positions(rows.clamp(max=self.embed_positions.num_embeddings - 1))
        if self.sinusoidal:
            x = x + sinusoidal(rows, x.size(-1)).to(x.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = self.dropout(x)
        return x if self.project_in is None else self.project_in(x)

    def context(self, layout: Layout, shared: Schemes, temperature: float) -> Context:
        """The layers' context; shared scores are computed once, except under recomputation."""
        temperature = 1.0 if self.training else temperature
        recomputed = self.gradient_checkpointing and self.training
        scores = None
        if shared and not recomputed:
            scores = scores_of(shared, layout)
            prepare(shared, layout)
        return Context(
            layout, shared, scores, compress=self.compress_layer, temperature=temperature
        )

    def padding_mask(
        self, attention_mask: Tensor | None, tokens: Tensor | None, embeddings: Tensor | None
    ) -> Tensor:
        """(B, T) bool, True at padding, from the mask or, without it, from the tokens."""
        if attention_mask is not None:
            return attention_mask == 0
        if tokens is not None:
            return tokens == self.pad
        if embeddings is None:
            raise ValueError("give input_ids or inputs_embeds")
        return torch.zeros(embeddings.shape[:2], dtype=torch.bool, device=embeddings.device)


class DietEncoder(DietStack):
    """An encoder, optionally with segments, and with BERT's pooler of the first real token."""

    _can_record_outputs = {"hidden_states": DietLayer, "attentions": DietAttention}  # noqa: RUF012

    def __init__(self, config: DietConfig, vocabulary: int | None = None) -> None:
        super().__init__(config, vocabulary or config.vocab_size)
        has_pooler, width = getattr(config, "pooler", False), config.encoder_embed_dim
        self.pooler = nn.Linear(width, width) if has_pooler else None
        self.activation = ACT2FN[getattr(config, "pooler_activation_fn", "tanh")]
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode tokens or their embeddings.

        Args:
            input_ids: (B, T)
            attention_mask: (B, T), 0 at padding (default: from the tokens)
            token_type_ids: (B, T), the segment of each token (default: the first)
            inputs_embeds: (B, T, d), instead of the tokens
        """
        refuse_positions(kwargs)
        padding_mask = self.padding_mask(attention_mask, input_ids, inputs_embeds)
        segments = None if self.num_segments is None else token_type_ids
        if segments is not None:
            segments = checked_segments(segments, padding_mask, self.num_segments or 0)
        layout = Layout.of_self_attention(padding_mask, segments=segments)
        x = self.embed(input_ids, inputs_embeds, layout, segments)  # (B, T, d)
        if layout.padding_mask is not None:
            x = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
        context = self.context(
            layout, without_none(self.positions, self.segments), self.temperature
        )
        for layer in self.layers:
            x = layer(x, context, **kwargs)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        pooled = None
        if self.pooler is not None:
            pooled = self.activation(self.pooler(first_tokens(x, padding_mask)))  # (B, d)
        return BaseModelOutputWithPooling(x, pooled)


class DietDecoder(DietStack):
    """A decoder."""

    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": DietLayer,
        "attentions": OutputRecorder(DietAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(DietAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: DietConfig) -> None:
        super().__init__(config, config.vocab_size, decoder=True)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode tokens or their embeddings.

        Args:
            input_ids: (B, T), the tokens after the past
            attention_mask: (B, past + T), 0 at padding (default: the past has no padding)
            encoder_hidden_states: (B, S, d)
            encoder_attention_mask: (B, S) (default: no padding)
            cache: keys and values of the past
            past_key_values: the same, as transformers before 5.24 calls it
        """
        refuse_positions(kwargs)
        if encoder_hidden_states is None:
            raise ValueError("a decoder of an encoder-decoder model needs encoder_hidden_states")
        if cache is not None and past_key_values is not None:
            raise ValueError("cache and past_key_values are two names of one cache: give one")
        cache = past_key_values if cache is None else cache
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        past = 0 if cache is None else int(cache.get_seq_length())
        new = self.padding_mask(None, input_ids, inputs_embeds)  # (B, T)
        if attention_mask is not None:
            padding_mask = attention_mask == 0
        else:
            padding_mask = torch.cat([new.new_zeros(len(new), past), new], dim=1)
        layout = Layout.of_self_attention(
            padding_mask, causal=True, queries=new.size(1) if past else None
        )
        sources = self.padding_mask(encoder_attention_mask, None, encoder_hidden_states)  # (B, S)
        x = self.embed(input_ids, inputs_embeds, layout)  # (B, T, d)
        context = self.context(layout, without_none(self.positions), self.temperature)
        crossing = self.context(
            Layout.of_cross_attention(layout, sources),
            without_none(self.cross_positions),
            self.cross_temperature,
        )
        for layer in self.layers:
            x = layer(x, context, encoder_hidden_states, crossing, cache, **kwargs)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return BaseModelOutputWithPastAndCrossAttentions(x, cache if use_cache else None)


def refuse_positions(options: dict[str, Any]) -> None:
    """Refuse positions of tokens among a model's keyword arguments.

    Raises:
        ValueError: there are some
    """
    for name in ("position_ids", "decoder_position_ids"):
        if options.get(name) is not None:
            raise ValueError(
                f"{name} is not supported, because positions count the tokens that "
                "attention_mask does not hide: leave it out"
            )


def sinusoidal(rows: Tensor, width: int) -> Tensor:
    """(B|1, T) rows of fairseq's table -> (B|1, T, width): sines, then cosines, then a zero if odd.

    Vaswani et al. (2017), section 3.5, in tensor2tensor's order and with its frequencies.
    """
    half = width // 2
    step = math.log(10000) / (half - 1)
    frequencies = torch.exp(torch.arange(half, device=rows.device, dtype=torch.float32) * -step)
    angles = rows.unsqueeze(-1).float() * frequencies  # (B|1, T, half)
    return nn.functional.pad(torch.cat([angles.sin(), angles.cos()], dim=-1), (0, width % 2))
