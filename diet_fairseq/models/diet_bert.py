"""Encoders with segments, a pooler and a next-sentence head: `bert_<scheme>` and its sizes."""

import logging
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Any

from fairseq import utils
from fairseq.models import register_model
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from ..config import PositionConfig, encoder_defaults
from ..positions.description import describe
from .architectures import register_architectures
from .diet_roberta import SIZES, DietRobertaModel
from .warm_start import current_warm_start

logger = logging.getLogger(__name__)

#: parameters of the encoder in TUPE's released code that belong to ``positions`` here
TUPE_PARTS = ("pos", "pos_q_linear", "pos_k_linear", "pos_ln", "relative_attention_bias")


@register_model("diet_bert")
class DietBertModel(DietRobertaModel):
    """RoBERTa with segments and a pooler, Devlin et al. (2019); ``--nsp`` adds BERT's head.

    ``pooler`` is (d, d), followed by tanh; ``nsp_head`` (2, d) predicts whether the second segment
    follows the first (class 1). Without ``--nsp`` the pooler is not trained.

    Checkpoints of the released TUPE code load into ``bert_tupe_a`` and ``bert_tupe_r`` with
    ``--segment-scheme none``.
    """

    has_segments = True

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        parser.add_argument(
            "--nsp",
            action="store_true",
            help="predict whether the second segment follows the first",
        )

    def __init__(self, args: Namespace, encoder: nn.Module) -> None:
        super().__init__(args, encoder)
        embed_dim = args.encoder_embed_dim
        self.pooler = nn.Linear(embed_dim, embed_dim)
        self.nsp_head = nn.Linear(embed_dim, 2) if getattr(args, "nsp", False) else None
        self.pooler.apply(init_bert_params)
        if self.nsp_head is None:
            # a parameter without a gradient would stop data-parallel training
            self.pooler.requires_grad_(False)
        else:
            self.nsp_head.apply(init_bert_params)
        self.activation = utils.get_activation_fn(args.pooler_activation_fn)

    def forward(
        self, src_tokens: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Like RoBERTa's; with ``--nsp`` the second output also has ``nsp_logits`` (B, 2)."""
        x, extra = super().forward(src_tokens, *args, **kwargs)
        if self.nsp_head is not None:
            first = self.first_tokens(extra["features"], src_tokens)  # (B, d)
            extra["nsp_logits"] = self.nsp_head(self.activation(self.pooler(first)))
        return x, extra

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Like RoBERTa's, and convert checkpoints of TUPE's released code."""
        prefix = f"{name}." if name else ""
        self.rename_tupe(state_dict, prefix)
        super().upgrade_state_dict_named(state_dict, name)
        if self.nsp_head is None and f"{prefix}nsp_head.weight" in state_dict:
            logger.warning("dropping the checkpoint's next-sentence head: this model has no --nsp")
            for part in ("weight", "bias"):
                del state_dict[f"{prefix}nsp_head.{part}"]

    def rename_tupe(self, state_dict: dict[str, Tensor], prefix: str) -> None:
        """Rename parameters of a checkpoint of TUPE's code in place, and add missing parameters.

        The checkpoint has no pooler, so a new pooler is initialised. All models of TUPE's code
        untie [CLS].
        """
        scheme = None
        for key in list(state_dict):
            start, encoder, name = key.partition(".sentence_encoder.")
            part = name.partition(".")[0]
            if encoder and part in TUPE_PARTS:
                state_dict[f"{start}{encoder}positions.{name}"] = state_dict.pop(key)
                if scheme != "tupe_r":
                    scheme = "tupe_r" if part == "relative_attention_bias" else "tupe_a"
        if scheme is None:
            return
        if f"{prefix}pooler.weight" not in state_dict:
            logger.warning("the checkpoint of TUPE's code has no pooler: a new one is initialised")
            for part, value in self.pooler.state_dict().items():
                state_dict[f"{prefix}pooler.{part}"] = value
        load = current_warm_start(self)
        if load is not None and load.description is None:
            options = Namespace(position_scheme=scheme, position_untie_cls="official")
            load.description = describe(PositionConfig.from_args(options))


register_architectures("diet_bert", "bert", SIZES, partial(encoder_defaults, has_segments=True))
