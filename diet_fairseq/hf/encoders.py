"""Encoders without a head, and with heads for masked words, classification and questions."""

import logging
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
from .stack import DietPreTrainedModel, DietStack, select_states

logger = logging.getLogger(__name__)

# Notation: B sentences, T tokens, d model dimension, V words.


class DietEncoder(DietStack, Encoder):
    """An encoder, optionally with segments and with BERT's pooler of the first token.

    Args:
        config: the configuration of an encoder or of an encoder-decoder model
        vocabulary: the number of tokens (default: ``config.vocab_size``)
    """

    def __init__(self, config: DietConfig, vocabulary: int | None = None) -> None:
        super().__init__(config, "encoder", vocabulary or config.vocab_size)
        has_pooler, width = getattr(config, "pooler", False), config.encoder_embed_dim
        self.pooler = nn.Linear(width, width) if has_pooler else None
        self.activation = ACT2FN[getattr(config, "pooler_activation_fn", "tanh")]
        self.has_warned = False
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
            token_type_ids: (B, T), the segment of each token (default: 0)
            inputs_embeds: (B, T, d), used instead of the embeddings of ``input_ids``
            kwargs: ``output_hidden_states``, ``output_attentions``, ``return_dict``
        """
        need_states, need_weights = self.read_output_options(kwargs)
        if isinstance(self.config, DietEncoderConfig) and not torch.compiler.is_compiling():
            self.warn_of_length(input_ids if inputs_embeds is None else inputs_embeds)
        out = self.encode(
            input_ids,
            None if self.num_segments is None else token_type_ids,
            embeddings=inputs_embeds,
            padding_mask=self.padding_mask(attention_mask, input_ids, inputs_embeds),
            need_states=bool(need_states),
            need_weights=range(self.num_layers) if need_weights else (),
        )
        pooled = None
        if self.pooler is not None:
            first = first_tokens(out.features, out.padding_mask)  # (B, d)
            pooled = self.activation(self.pooler(first))  # (B, d)
        return BaseModelOutputWithPooling(
            out.features,
            pooled,
            hidden_states=select_states(out.states, out.features, need_states),
            attentions=tuple(out.weights.values()) if need_weights else None,
        )

    def warn_of_length(self, inputs: Tensor | None) -> None:
        """Warn once of inputs (B, T, ..) that are longer than the inputs of the training."""
        trained = self.config.trained_length or self.config.max_source_positions
        if inputs is None or inputs.size(1) <= trained or self.has_warned:
            return
        self.has_warned = True
        logger.warning(
            "an input has %d tokens, but the inputs of the training had at most %d: test the model "
            "on your texts; after training on longer inputs, raise trained_length in the "
            "configuration", inputs.size(1), trained,
        )  # fmt: skip


class DietEncoderModel(DietEncoder):
    """An encoder without a head."""

    config: DietEncoderConfig


class DietEncoderPreTrainedModel(DietPreTrainedModel):
    """Base class of encoders with a head."""

    config: DietEncoderConfig

    def __init__(self, config: DietEncoderConfig) -> None:
        super().__init__(config)
        self.model = DietEncoderModel(config)


class LMHead(nn.Module):
    """RoBERTa's head for masked language modelling: (B, T, d) -> (B, T, V)."""

    def __init__(self, config: DietEncoderConfig) -> None:
        super().__init__()
        width = config.encoder_embed_dim
        embedding_width = config.embedding_dim or width
        self.dense = nn.Linear(width, embedding_width)
        self.layer_norm = nn.LayerNorm(embedding_width, config.layer_norm_eps)
        self.decoder = nn.Linear(embedding_width, config.vocab_size)
        self.activation = ACT2FN[config.activation_fn]

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.layer_norm(self.activation(self.dense(x))))


class DietForMaskedLM(DietEncoderPreTrainedModel):
    """An encoder with RoBERTa's head for masked language modelling."""

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
        """Predict masked words; the other arguments are as in `DietEncoder.forward`.

        Args:
            labels: (B, T) int64, the masked words, and -100 at all other tokens
        """
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
    """An encoder with a head that classifies one text or two, or predicts a number (regression).

    The head reads the first real token. ``num_labels`` is 1 for regression.
    """

    accepts_loss_kwargs = False  # Trainer then divides the loss by the accumulation steps

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
        """Classify texts; the other arguments are as in `DietEncoder.forward`.

        Args:
            labels: (B,) int64, or float if ``num_labels`` is 1
        """
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
    """An encoder for extractive question answering: a head that reads every token."""

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
        """Find the answer in a text; the other arguments are as in `DietEncoder.forward`.

        Args:
            start_positions: (B,) int64, the first token of the answer
            end_positions: (B,) int64, the last token of the answer
        """
        out = self.model(input_ids, attention_mask, token_type_ids, **kwargs)
        start, end = self.qa_outputs(out.last_hidden_state).unbind(-1)  # (B, T) each
        loss: Tensor | None = None
        if start_positions is not None and end_positions is not None:
            embeddings = kwargs.get("inputs_embeds")
            padding_mask = self.model.padding_mask(attention_mask, input_ids, embeddings)
            # mask padding, so that the loss does not depend on the other sentences of the batch
            scores = [logits.masked_fill(padding_mask, -torch.inf) for logits in (start, end)]
            loss = self.loss_function(*scores, start_positions, end_positions, **kwargs)
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start,
            end_logits=end,
            hidden_states=out.hidden_states,
            attentions=out.attentions,
        )
