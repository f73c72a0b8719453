"""Encoders, alone and with heads: language modelling, classification, question answering."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from ..positions.layout import first_tokens
from ..transformer import Encoder
from .configuration import DietConfig, DietEncoderConfig
from .stack import DietPreTrainedModel, DietStack, selected_states

# Notation: B sentences, T tokens, d model dimension, V words.


class DietEncoder(DietStack, Encoder):
    """An encoder, optionally with segments and with BERT's pooler, which reads the first token."""

    def __init__(self, config: DietConfig, vocabulary: int | None = None) -> None:
        super().__init__(config, "encoder", vocabulary or config.vocab_size)
        has_pooler, width = getattr(config, "pooler", False), config.encoder_embed_dim
        self.pooler = nn.Linear(width, width) if has_pooler else None
        self.activation = ACT2FN[getattr(config, "pooler_activation_fn", "tanh")]
        self.post_init()

    @can_return_tuple
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
            kwargs: ``output_hidden_states``, ``output_attentions``, ``return_dict``
        """
        need_states, need_weights = self.requests(kwargs)
        out = self.encode(
            input_ids,
            None if self.num_segments is None else token_type_ids,
            embeddings=inputs_embeds,
            padding_mask=self.padding_mask(attention_mask, input_ids, inputs_embeds),
            need_states=bool(need_states),
            need_weights=bool(need_weights),
        )
        pooled = None
        if self.pooler is not None:
            first = first_tokens(out.features, out.padding_mask)  # (B, d)
            pooled = self.activation(self.pooler(first))  # (B, d)
        return BaseModelOutputWithPooling(
            out.features,
            pooled,
            hidden_states=selected_states(out.states, out.features, need_states),
            attentions=tuple(out.weights) if need_weights else None,
        )


class DietEncoderModel(DietEncoder):
    """An encoder without a head."""

    config: DietEncoderConfig
    config_class = DietEncoderConfig


class DietEncoderPreTrainedModel(DietPreTrainedModel):
    """Base class of encoders with a head."""

    config: DietEncoderConfig
    config_class = DietEncoderConfig

    def __init__(self, config: DietEncoderConfig) -> None:
        super().__init__(config)
        self.model = DietEncoderModel(config)


class LMHead(nn.Module):
    """RoBERTa's head of masked language modelling: (B, T, d) -> (B, T, V)."""

    def __init__(self, config: DietEncoderConfig) -> None:
        super().__init__()
        width, embedded = config.encoder_embed_dim, config.embedding_dim or config.encoder_embed_dim
        self.dense = nn.Linear(width, embedded)
        self.layer_norm = nn.LayerNorm(embedded, config.layer_norm_eps)
        self.decoder = nn.Linear(embedded, config.vocab_size)
        self.activation = ACT2FN[config.activation_fn]

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.layer_norm(self.activation(self.dense(x))))


class DietForMaskedLM(DietEncoderPreTrainedModel):
    """Masked language modelling."""

    _tied_weights_keys = {"lm_head.decoder.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: DietEncoderConfig) -> None:
        super().__init__(config)
        self.lm_head = LMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head.decoder

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.lm_head.decoder = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """``labels`` (B, T) int64: the masked words, -100 elsewhere."""
        out = self.model(input_ids, attention_mask, token_type_ids, **kwargs)
        logits = self.lm_head(out.last_hidden_state)  # (B, T, V)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **kwargs)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=out.hidden_states, attentions=out.attentions
        )


class ClassificationHead(nn.Module):
    """RoBERTa's classification head: (..., d) -> (..., classes)."""

    def __init__(self, config: DietEncoderConfig, classes: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.encoder_embed_dim, config.encoder_embed_dim)
        self.out_proj = nn.Linear(config.encoder_embed_dim, classes)
        self.dropout = nn.Dropout(config.pooler_dropout)
        self.activation = ACT2FN[config.pooler_activation_fn]

    def forward(self, x: Tensor) -> Tensor:
        return self.out_proj(self.dropout(self.activation(self.dense(self.dropout(x)))))


class DietForSequenceClassification(DietEncoderPreTrainedModel):
    """Classification or regression of one text or two, from the first real token."""

    accepts_loss_kwargs = False  # Trainer divides the loss by the steps of gradient accumulation

    def __init__(self, config: DietEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.classifier = ClassificationHead(config, config.num_labels or 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """``labels``: (B,) int64, or float where ``num_labels`` is 1."""
        out = self.model(input_ids, attention_mask, token_type_ids, **kwargs)
        embeddings = kwargs.get("inputs_embeds")
        padding_mask = self.model.padding_mask(attention_mask, input_ids, embeddings)
        logits = self.classifier(first_tokens(out.last_hidden_state, padding_mask))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels, logits, self.config, **kwargs)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=out.hidden_states, attentions=out.attentions
        )


class DietForQuestionAnswering(DietEncoderPreTrainedModel):
    """Extractive question answering: RoBERTa's classification head on every token."""

    accepts_loss_kwargs = False

    def __init__(self, config: DietEncoderConfig) -> None:
        super().__init__(config)
        self.qa_outputs = ClassificationHead(config, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """``start_positions``, ``end_positions``: (B,) int64, the first and the last token."""
        out = self.model(input_ids, attention_mask, token_type_ids, **kwargs)
        start, end = self.qa_outputs(out.last_hidden_state).unbind(-1)  # (B, T) each
        loss: torch.Tensor | None = None
        if start_positions is not None and end_positions is not None:
            embeddings = kwargs.get("inputs_embeds")
            padding_mask = self.model.padding_mask(attention_mask, input_ids, embeddings)
            # without padding, so that the loss does not depend on the batch
            scores = [logits.masked_fill(padding_mask, -torch.inf) for logits in (start, end)]
            loss = self.loss_function(*scores, start_positions, end_positions, **kwargs)
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start,
            end_logits=end,
            hidden_states=out.hidden_states,
            attentions=out.attentions,
        )
