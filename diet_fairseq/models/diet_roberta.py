"""Encoders for masked language modelling and fine-tuning: `roberta_<scheme>` and its sizes."""

import logging
from argparse import ArgumentParser, Namespace
from typing import Any, ClassVar

import torch.nn.functional as F
from fairseq.models.roberta import RobertaEncoder, RobertaHubInterface, RobertaModel
from fairseq.models.roberta.model import (
    RobertaLMHead,
    base_architecture,
    roberta_large_architecture,
)
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks.denoising import DenoisingTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.multilingual_language_modeling import MultilingualLanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

from ..checks import not_below
from ..config import PositionConfig, options_of
from ..errors import UserError
from ..positions import PositionScheme
from ..positions.layout import first_tokens
from ..registration import register_model
from ..stack.encoder import PositionalEncoder
from ..stack.warm_start import WarmStart
from .architectures import (
    Size,
    check_no_cross_attention,
    check_no_segments,
    check_task,
    fill_in,
    refuse_torchscript,
    register_architectures,
    settle,
)

logger = logging.getLogger(__name__)

#: options of fairseq's encoders that would bypass our attention
UNSUPPORTED = ("encoder_xformers_att_config", "mha_heads_to_keep")
#: tasks that need a decoder
GENERATING = (
    DenoisingTask,
    LanguageModelingTask,
    MultilingualLanguageModelingTask,
    TranslationTask,
)


class FactoredHead(RobertaLMHead):
    """RoBERTa's head, from features d wide to token embeddings e wide: (.., d) -> (.., V)."""

    def __init__(self, width: int, embedding_size: int, **options: Any) -> None:
        super().__init__(embedding_size, **options)
        self.dense = nn.Linear(width, embedding_size)


class PositionalRobertaEncoder(RobertaEncoder):
    """fairseq's encoder with its language-model head, which also passes segments on.

    Token embeddings may be narrower than the layers, as ELECTRA-small's are.
    """

    def build_embedding(self, vocab_size: int, embedding_dim: int, padding_idx: int) -> nn.Module:
        return nn.Embedding(vocab_size, embedding_size(self.args), padding_idx)

    def build_lm_head(self, embed_dim: int, **options: Any) -> nn.Module | None:
        if embedding_size(self.args) == embed_dim:
            return super().build_lm_head(embed_dim, **options)
        return FactoredHead(embed_dim, embedding_size(self.args), **options)

    def build_encoder(self, args: Any, dictionary: Any, embed_tokens: nn.Embedding) -> nn.Module:
        return PositionalEncoder(TransformerConfig.from_namespace(args), dictionary, embed_tokens)

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        masked_tokens: Tensor | None = None,
        segments: Tensor | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As fairseq's, with ``segments`` (B, T) int64; the second output also has features.

        Returns:
            (B, T, V), or (masked tokens, V), or features (B, T, d); and ``inner_states`` of
            (T, B, d), ``features`` (B, T, d)
        """
        out = self.sentence_encoder(
            src_tokens, return_all_hiddens=return_all_hiddens, segments=segments
        )
        features = out["encoder_out"][0].transpose(0, 1)  # (B, T, d)
        extra = {
            "inner_states": out["encoder_states"] if return_all_hiddens else None,
            "features": features,
        }
        if features_only:
            return features, extra
        return self.output_layer(features, masked_tokens=masked_tokens), extra

    def max_positions(self) -> int:
        """The longest input; without an absolute table the length is not limited."""
        return self.sentence_encoder.max_positions()


class PositionalHubInterface(RobertaHubInterface):
    """fairseq's, but it calls the model, whose heads read the first real token."""

    def predict(self, head: str, tokens: Tensor, return_logits: bool = False) -> Tensor:
        """(B, T), or (T,) as `encode` returns -> (B, classes): log-probabilities, or logits."""
        tokens = tokens.unsqueeze(0) if tokens.dim() == 1 else tokens
        logits, _ = self.model(tokens.to(self.device), classification_head_name=head)
        return logits if return_logits else F.log_softmax(logits, dim=-1)


@register_model("diet_roberta")
class DietRobertaModel(WarmStart, RobertaModel):
    """fairseq's RoBERTa whose attention has a position scheme.

    Parameter names are fairseq's; ``roberta_learned`` loads stock state dicts strictly.
    Classification heads read the first real token, on whichever side the padding is.
    """

    has_segments: ClassVar[bool] = False

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        # fairseq's layers have these options, but its RoBERTa has no flags for them
        parser.add_argument(
            "--checkpoint-activations",
            action="store_true",
            help="recompute activations in the backward pass: less memory, more time",
        )
        parser.add_argument(
            "--offload-activations",
            action="store_true",
            help="checkpoint activations, and keep them in the CPU's memory",
        )
        parser.add_argument(
            "--embedding-size",
            type=int,
            help="width of the token embeddings, projected to the encoder's (default: as wide)",
        )
        PositionConfig.add_args(parser)

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "DietRobertaModel":
        check_task(
            task,
            GENERATING,
            "roberta_... or bert",
            "take --task masked_lm, or one that fine-tunes; for translation an "
            "--arch transformer_...",
        )
        config = settle(args, UNSUPPORTED)
        check_no_cross_attention(config, "an encoder")
        if not cls.has_segments:
            check_no_segments(config, "a RoBERTa", "leave it out, or take --arch bert_...")
        if getattr(args, "offload_activations", False):
            args.checkpoint_activations = True
        if not hasattr(args, "max_positions"):
            if not hasattr(args, "tokens_per_sample"):
                args.tokens_per_sample = task.max_positions()
            args.max_positions = args.tokens_per_sample
        not_below("--max-positions", args.max_positions, 1)
        if getattr(args, "embedding_size", None) is not None:
            not_below("--embedding-size", args.embedding_size, 1)
        return cls(args, cls.build_encoder(args, task))

    @classmethod
    def build_encoder(cls, args: Namespace, task: Any) -> RobertaEncoder:
        return PositionalRobertaEncoder(args, task.source_dictionary)

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: str | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As `PositionalRobertaEncoder.forward`; with the name of a head, (B, classes)."""
        features_only = features_only or classification_head_name is not None
        x, extra = self.encoder(src_tokens, features_only, return_all_hiddens, **kwargs)
        if classification_head_name is not None:
            x = self.first_tokens(x, src_tokens).unsqueeze(1)  # (B, 1, d): a head reads column 0
            x = self.classification_heads[classification_head_name](x)
        return x, extra

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> RobertaHubInterface:
        """As fairseq's, but ``predict`` reads the first real token."""
        hub = super().from_pretrained(*args, **kwargs)
        return PositionalHubInterface(hub.cfg, hub.task, hub.model)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As fairseq's; an ELECTRA's checkpoint gives its discriminator."""
        take_discriminator(self, state_dict, f"{name}." if name else "")
        super().upgrade_state_dict_named(state_dict, name)

    def first_tokens(self, features: Tensor, src_tokens: Tensor) -> Tensor:
        """(B, T, d) -> (B, d)."""
        return first_tokens(features, src_tokens.eq(self.encoder.dictionary.pad()))

    def __prepare_scriptable__(self) -> None:
        refuse_torchscript()


def take_discriminator(model: nn.Module, state_dict: dict[str, Tensor], prefix: str) -> None:
    """Drop, in place, an ELECTRA's parameters for pretraining only, unless the model has them.

    Parts that an ELECTRA lacks are newly initialised.
    """
    parts = ("generator.", "discriminator_head.")
    model_state = model.state_dict()
    pretraining = [key for key in state_dict if key.removeprefix(prefix).startswith(parts)]
    if not pretraining or any(key.startswith(parts) for key in model_state):
        return
    words = "encoder.sentence_encoder.embed_tokens.weight"
    embeddings = state_dict.get(prefix + words)  # (V, e)
    if embeddings is None:
        raise UserError(
            "the checkpoint has an ELECTRA's generator and no discriminator: start from one that "
            "--criterion electra has trained"
        )
    width = model_state[words].shape[1]
    if embeddings.dim() == 2 and embeddings.shape[1] != width:
        raise UserError(
            f"the checkpoint's discriminator has token embeddings {embeddings.shape[1]} wide, but "
            f"the model's are {width}: give --embedding-size {embeddings.shape[1]}"
        )
    logger.info("loading ELECTRA's discriminator; its head and the generator are dropped")
    for key in pretraining:
        del state_dict[key]
    for key, value in model_state.items():
        if key.startswith(("encoder.lm_head.", "pooler.")):
            state_dict.setdefault(prefix + key, value)
    tied = f"{prefix}encoder.lm_head.weight"
    if tied in state_dict:
        state_dict[tied] = embeddings


def embedding_size(args: Namespace) -> int:
    """The width of token embeddings; the encoder's unless ``--embedding-size`` is given."""
    width = getattr(args, "embedding_size", None)
    return args.encoder_embed_dim if width is None else width


def size(layers: int, embed_dim: int, ffn_embed_dim: int, heads: int) -> Size:
    defaults = {
        "encoder_layers": layers,
        "encoder_embed_dim": embed_dim,
        "encoder_ffn_embed_dim": ffn_embed_dim,
        "encoder_attention_heads": heads,
    }

    def fill(args: Namespace) -> None:
        fill_in(args, defaults)
        base_architecture(args)

    return fill


#: BERT's sizes, DIET's BERT-small, and one for a CPU; dropout is 0.1 in all
SIZES: dict[str, Size] = {
    "": base_architecture,
    "_tiny": size(4, 128, 512, 4),
    "_small": size(4, 512, 2048, 8),
    "_base": base_architecture,
    "_large": roberta_large_architecture,
}


def defaults(scheme: type[PositionScheme]) -> dict[str, Any]:
    """RoBERTa's defaults for a scheme's options."""
    untied = "position_untie_cls" in options_of(scheme)
    return {"position_untie_cls": "official"} if untied else {}


register_architectures("diet_roberta", "roberta", SIZES, defaults)
