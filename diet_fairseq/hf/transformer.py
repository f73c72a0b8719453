"""Encoder-decoder models: translation with transformers' `generate`."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults

from ..errors import UserError
from ..transformer import Decoder
from .configuration import CACHE, DietTransformerConfig
from .encoders import DietEncoder
from .stack import DietPreTrainedModel, DietStack, select_states

# Notation: B sentences, S source tokens, T target tokens, Tk keys, H heads, d model dimension,
# d_h width of a head, V words.

SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"


@dataclass
class TransformersCache:
    """A cache of transformers with the interface of `transformer.DecodingCache`.

    transformers reorders the cache itself, and every row has its own source.
    """

    beams: ClassVar[int] = 1

    cache: EncoderDecoderCache  # a static cache has longer tensors than the stored keys
    length: int  # number of target tokens in the cache
    new_length: int  # number of target tokens in the cache after the forward pass
    source_length: int  # number of source tokens
    source_padding_mask: Tensor | None = None  # (B, S) bool, set in each forward pass

    def store(self, layer: int, is_cross: bool) -> "KeysAndValues":
        """The keys and values of a layer's self-attention or cross-attention."""
        return KeysAndValues(self, layer, is_cross)


class KeysAndValues:
    """The keys and values of one attention, (B, H, Tk, d_h) each."""

    def __init__(self, owner: TransformersCache, layer: int, is_cross: bool) -> None:
        cache: Any = owner.cache
        self.is_updated, self.layer, self.is_cross = cache.is_updated, layer, is_cross
        self.part = cache.cross_attention_cache if is_cross else cache.self_attention_cache
        self.past = owner.source_length if is_cross else owner.length
        self.length = owner.source_length if is_cross else owner.new_length

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens, (B, H, new, d_h), and return all."""
        keys, values = self.part.update(keys, values, self.layer)
        if self.is_cross:
            self.is_updated[self.layer] = True
        return truncate(keys, values, self.length)

    def get_all(self) -> tuple[Tensor, Tensor] | None:
        """All stored keys and values; None: nothing is stored yet."""
        if self.past == 0 or (self.is_cross and not self.is_updated.get(self.layer)):
            return None
        stored = self.part.layers[self.layer]
        return truncate(stored.keys, stored.values, self.past)


def truncate(keys: Tensor, values: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The keys and values of the first tokens, without the unused end of a static cache."""
    return keys[:, :, :length], values[:, :, :length]


class DietDecoder(DietStack, Decoder):
    """The decoder of an encoder-decoder model."""

    def __init__(self, config: DietTransformerConfig) -> None:
        super().__init__(config, "decoder", config.vocab_size)
        self.post_init()

    @can_return_tuple
    @merge_with_config_defaults
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
            input_ids: (B, T), the tokens after the cached tokens
            attention_mask: (B, past + T), 0 at padding (default: only new tokens can be padding)
            encoder_hidden_states: (B, S, d), the output of the encoder
            encoder_attention_mask: (B, S), 0 at padding (default: no padding)
            cache: keys and values of earlier tokens
            inputs_embeds: (B, T, d), used instead of the embeddings of ``input_ids``
            use_cache: whether to return the cache; without ``cache``, a new cache is created
            past_key_values: the name of ``cache`` in transformers before 5.24
            kwargs: ``output_hidden_states``, ``output_attentions``, ``return_dict``
        """
        need_states, need_weights = self.read_output_options(kwargs)
        if encoder_hidden_states is None:
            raise ValueError("a decoder of an encoder-decoder model needs encoder_hidden_states")
        if cache is not None and past_key_values is not None:
            raise ValueError(
                "cache and past_key_values are two names of the same cache: give only one"
            )
        cache = past_key_values if cache is None else cache
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        new = self.padding_mask(None, input_ids, inputs_embeds)  # (B, T)
        past = 0 if cache is None else int(cache.get_seq_length())
        padding_mask = nn.functional.pad(new, (past, 0))  # (B, past + T)
        if attention_mask is not None:
            padding_mask = attention_mask == 0
        store: Any = None
        if cache is not None:
            sources = encoder_hidden_states.size(1)
            store = TransformersCache(cache, past, padding_mask.size(1), sources)
        layers = range(self.num_layers) if need_weights else ()
        out = self.decode(
            input_ids,
            encoder_hidden_states,
            None if encoder_attention_mask is None else encoder_attention_mask == 0,
            store,
            embeddings=inputs_embeds,
            padding_mask=padding_mask,
            need_weights=layers,
            need_cross_weights=layers,
        )
        return BaseModelOutputWithPastAndCrossAttentions(
            out.features,
            cache if use_cache else None,
            hidden_states=select_states(out.states, out.features, need_states),
            attentions=tuple(out.weights.values()) if need_weights else None,
            cross_attentions=tuple(out.cross_weights.values()) if need_weights else None,
        )


class DietTransformerPreTrainedModel(DietPreTrainedModel):
    """The base class of encoder-decoder models."""

    config: DietTransformerConfig

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any
    ) -> nn.Embedding:
        """Resize the embeddings of a model whose source, target and output share one matrix.

        For other models transformers would resize only the embeddings of the source, and save a
        folder that it can't load.

        Raises:
            UserError: the model has several matrices of embeddings
        """
        config = self.config
        is_shared = config.share_all_embeddings and config.share_decoder_input_output_embed
        if not is_shared and new_num_tokens is not None:
            raise UserError(
                f"resize_token_embeddings to {new_num_tokens} needs one matrix of embeddings for "
                "source, target and output, but this model has several: train one with "
                "--share-all-embeddings, or put the words into fairseq's dictionaries first"
            )
        return super().resize_token_embeddings(new_num_tokens, *args, **kwargs)


class DietTransformerModel(DietTransformerPreTrainedModel):
    """An encoder and a decoder, without the output projection."""

    def __init__(self, config: DietTransformerConfig) -> None:
        super().__init__(config)
        self._tied_weights_keys = {TARGET: SOURCE} if config.share_all_embeddings else {}
        self.encoder = DietEncoder(config, config.source_vocab_size)
        self.decoder = DietDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.embed_tokens = value
        if self.config.share_all_embeddings:
            self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        cache: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> Seq2SeqModelOutput:
        """Compute the decoder's features.

        The arguments of the encoder are as in `DietEncoder.forward`, and the arguments of the
        decoder are as in `DietDecoder.forward`.

        Args:
            input_ids: (B, S), the source
            decoder_input_ids: (B, T), the target shifted right, which begins with ``</s>``
            encoder_outputs: the result of the encoder, which is then not computed again
        """
        if attention_mask is None and (input_ids is not None or inputs_embeds is not None):
            attention_mask = (~self.encoder.padding_mask(None, input_ids, inputs_embeds)).long()
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs
            )
        elif not hasattr(encoder_outputs, "last_hidden_state"):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        out = self.decoder(
            decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            past_key_values=past_key_values,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            out.last_hidden_state,
            out.get(CACHE),
            decoder_hidden_states=out.hidden_states,
            decoder_attentions=out.attentions,
            cross_attentions=out.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


class DietForConditionalGeneration(DietTransformerPreTrainedModel, GenerationMixin):
    """An encoder-decoder model with an output projection, for translation with `generate`."""

    def __init__(self, config: DietTransformerConfig) -> None:
        super().__init__(config)
        if config.share_decoder_input_output_embed:
            source = SOURCE if config.share_all_embeddings else TARGET
            self._tied_weights_keys = {"lm_head.weight": f"model.{source}"}
        self.model = DietTransformerModel(config)
        self.lm_head = nn.Linear(
            config.decoder_embed_dim, config.vocab_size, bias=config.decoder_output_bias
        )
        # the loss of "ForConditionalGeneration" would shift the labels again
        self.loss_type = "ForMaskedLM"
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        cache: EncoderDecoderCache | None = None,
        labels: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Compute logits and, with ``labels``, the loss.

        The other arguments are as in `DietTransformerModel.forward`.

        Args:
            labels: (B, T) int64, the target, which ends with ``</s>``; -100 at padding. The shifted
                labels are the default input of the decoder
        """
        if labels is not None:
            kwargs["use_cache"] = False
            if decoder_input_ids is None and kwargs.get("decoder_inputs_embeds") is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        inputs = (input_ids, attention_mask, decoder_input_ids, decoder_attention_mask)
        out = self.model(
            *inputs, encoder_outputs, cache=cache, past_key_values=past_key_values, **kwargs
        )
        logits = self.lm_head(out.last_hidden_state)  # (B, T, V)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **kwargs)
        named = {name: value for name, value in out.items() if name != "last_hidden_state"}
        return Seq2SeqLMOutput(loss=loss, logits=logits, **named)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The input of the decoder for labels (B, T): (B, T), shifted right after ``</s>``."""
        shifted = labels.roll(1, dims=1)
        shifted[:, 0] = self.config.decoder_start_token_id or 0
        return shifted.masked_fill(shifted == -100, self.config.pad_token_id or 0)

    def generate(self, inputs: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Generate outputs as transformers does, with masks that follow from the tokens by default.

        transformers drops the source tokens before the decoder needs their mask, so this method
        creates the masks.
        """
        tokens = {"": kwargs.get("input_ids", inputs), "decoder_": kwargs.get("decoder_input_ids")}
        for side, ids in tokens.items():
            if ids is not None and kwargs.get(f"{side}attention_mask") is None:
                kwargs[f"{side}attention_mask"] = ids.ne(self.config.pad_token_id or 0).long()
        return super().generate(inputs, *args, **kwargs)

    @staticmethod
    def create_masks_for_generate(attention_mask: Any = None, **_: Any) -> Any:
        """The mask itself, because our attention creates the masks that it needs."""
        return attention_mask
