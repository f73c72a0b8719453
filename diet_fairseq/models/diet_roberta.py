"""Encoders for masked language modelling and fine-tuning: `roberta_<scheme>` and its sizes."""

import logging
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Any, ClassVar

from fairseq.models import register_model
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.roberta.model import (
    RobertaLMHead,
    base_architecture,
    roberta_large_architecture,
)
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks.denoising import DenoisingTask
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

from ..config import PositionConfig, encoder_defaults
from ..errors import UserError, check_at_least
from ..positions.layout import first_tokens
from . import growing
from .adapters import PositionalEncoder, layer_norm_eps
from .architectures import (
    ArchitectureFunction,
    register_architectures,
    set_defaults,
    to_namespace,
    validate_options,
)
from .warm_start import WarmStart

logger = logging.getLogger(__name__)

#: options of fairseq's encoders that would bypass our attention
UNSUPPORTED = ("encoder_xformers_att_config", "mha_heads_to_keep", "ffn_blocks_to_remove")


class FactoredHead(RobertaLMHead):
    """RoBERTa's head for embeddings of another width than the features: (.., d) -> (.., V)."""

    def __init__(self, width: int, embedding_size: int, **options: Any) -> None:
        super().__init__(embedding_size, **options)
        self.dense = nn.Linear(width, embedding_size)


class PositionalRobertaEncoder(RobertaEncoder):
    """fairseq's encoder with its language-model head and optional segments.

    Token embeddings may be narrower than the layers, as ELECTRA-small's are.
    """

    def build_embedding(self, vocab_size: int, embedding_dim: int, padding_idx: int) -> nn.Module:
        return nn.Embedding(vocab_size, embedding_size(self.args), padding_idx)

    def build_lm_head(self, embed_dim: int, **options: Any) -> nn.Module | None:
        if getattr(self.args, "no_lm_head", False):
            return None
        head: Any = None
        if embedding_size(self.args) == embed_dim:
            head = super().build_lm_head(embed_dim, **options)
        else:
            head = FactoredHead(embed_dim, embedding_size(self.args), **options)
        head.layer_norm.eps = layer_norm_eps(self.args)
        return head

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
        """Like fairseq's, with ``segments`` (B, T) int64; the second output also has features.

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
        if self.lm_head is None:
            raise UserError(
                "this model has no head for masked words (--no-lm-head), which this task needs: "
                "remove --no-lm-head from the options, and a new head is trained"
            )
        return self.output_layer(features, masked_tokens=masked_tokens), extra

    def max_positions(self) -> int:
        """The length limit in tokens; `transformer.config.UNLIMITED` without absolute positions."""
        return self.sentence_encoder.max_positions()


@register_model("diet_roberta")
class DietRobertaModel(WarmStart, RobertaModel):
    """fairseq's RoBERTa whose attention has a position scheme.

    Parameter names are fairseq's; ``roberta_learned`` loads stock state dicts strictly.
    In ``forward`` classification heads read the first real token, on whichever side the padding is;
    fairseq's hub interface reads column 0.
    """

    has_segments: ClassVar[bool] = False

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        # fairseq's layers have this option, but its RoBERTa has no flag for it
        parser.add_argument(
            "--checkpoint-activations",
            action="store_true",
            help="recompute activations in the backward pass: less memory, more time",
        )
        parser.add_argument(
            "--embedding-size",
            type=int,
            help="width of the token embeddings, which are projected to the encoder's width "
            "(default: the encoder's width)",
        )
        parser.add_argument(
            "--layer-norm-eps", type=float,
            help="epsilon of LayerNorm (default: 1e-5; BERT uses 1e-12)",
        )  # fmt: skip
        parser.add_argument(
            "--no-lm-head",
            action="store_true",
            help="leave out the head for masked words; without it, the encoder can be fine-tuned "
            "and exported, but not pretrained",
        )
        PositionConfig.add_args(parser)
        growing.add_arguments(parser)

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "DietRobertaModel":
        # such a task would train where both sides have one length
        if isinstance(task, DenoisingTask | TranslationTask):
            raise UserError(
                "this task needs a decoder, which an encoder lacks: use --arch transformer_..."
            )
        config = validate_options(args, UNSUPPORTED)
        config.check_no_cross_attention()
        if not cls.has_segments:
            config.check_no_segments("a RoBERTa", "leave it out, or use --arch bert_...")
        args = to_namespace(args)
        if not hasattr(args, "max_positions"):
            if not hasattr(args, "tokens_per_sample"):
                args.tokens_per_sample = task.max_positions()
            args.max_positions = args.tokens_per_sample
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
        """Like `PositionalRobertaEncoder.forward`; with the name of a head, (B, classes)."""
        features_only = features_only or classification_head_name is not None
        x, extra = self.encoder(src_tokens, features_only, return_all_hiddens, **kwargs)
        if classification_head_name is not None:
            x = self.first_tokens(x, src_tokens).unsqueeze(1)  # (B, 1, d): a head reads column 0
            x = self.classification_heads[classification_head_name](x)
        return x, extra

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Like fairseq's; from an ELECTRA checkpoint, load only the discriminator."""
        keep_discriminator(self, state_dict, f"{name}." if name else "")
        super().upgrade_state_dict_named(state_dict, name)

    def first_tokens(self, features: Tensor, src_tokens: Tensor) -> Tensor:
        """The features of each sentence's first real token: (B, T, d) -> (B, d)."""
        return first_tokens(features, src_tokens.eq(self.encoder.dictionary.pad()))


def keep_discriminator(model: nn.Module, state_dict: dict[str, Tensor], prefix: str) -> None:
    """Drop, in place, parameters that only ELECTRA's pretraining needs, unless the model has them.

    Parts that an ELECTRA lacks are newly initialised.
    """
    parts = ("generator.", "discriminator_head.")
    model_state = model.state_dict()
    pretraining = [key for key in state_dict if key.removeprefix(prefix).startswith(parts)]
    if not pretraining or any(key.startswith(parts) for key in model_state):
        return
    logger.info("loading ELECTRA's discriminator; its head and the generator are dropped")
    for key in pretraining:
        del state_dict[key]
    for key, value in model_state.items():
        if key.startswith(("encoder.lm_head.", "pooler.")):
            state_dict.setdefault(prefix + key, value)
    words = f"{prefix}encoder.sentence_encoder.embed_tokens.weight"
    tied = f"{prefix}encoder.lm_head.weight"
    if tied in state_dict and words in state_dict:
        state_dict[tied] = state_dict[words]


def embedding_size(args: Namespace) -> int:
    """The width of token embeddings: ``--embedding-size``, or the encoder's width."""
    size: int = getattr(args, "embedding_size", None) or 0
    return check_at_least("--embedding-size", size, 0) or args.encoder_embed_dim


def create_size(
    layers: int, embed_dim: int, ffn_embed_dim: int, heads: int, **options: Any
) -> ArchitectureFunction:
    """Create the architecture function of a size."""
    defaults = {
        "encoder_layers": layers,
        "encoder_embed_dim": embed_dim,
        "encoder_ffn_embed_dim": ffn_embed_dim,
        "encoder_attention_heads": heads,
        **options,
    }

    def set_size(args: Namespace) -> None:
        set_defaults(args, defaults)
        base_architecture(args)

    return set_size


#: BERT's sizes, DIET's BERT-small, and a size for a CPU; all have dropout 0.1
SIZES: dict[str, ArchitectureFunction] = {
    "": base_architecture,
    "_tiny": create_size(4, 128, 512, 4),
    "_small": create_size(4, 512, 2048, 8),
    "_base": base_architecture,
    "_large": roberta_large_architecture,
}


register_architectures(
    "diet_roberta", "roberta", SIZES, partial(encoder_defaults, has_segments=False)
)
