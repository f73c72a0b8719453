"""Encoders with segments, a pooler and a next-sentence head: `bert_<scheme>` and its sizes."""

import logging
from argparse import ArgumentParser, Namespace
from typing import Any

from fairseq import utils
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from ..positions import PositionScheme
from ..registration import register_model
from ..stack import warm_start
from . import diet_roberta, tupe_checkpoints
from .architectures import register_architectures
from .diet_roberta import SIZES, DietRobertaModel

logger = logging.getLogger(__name__)


@register_model("diet_bert")
class DietBertModel(DietRobertaModel):
    """Devlin et al. (2019): RoBERTa with segments, a pooler and, with ``--nsp``, its head.

    ``pooler`` is (d, d), followed by tanh; ``nsp_head`` (2, d) predicts whether the second segment
    follows the first (class 1). Without ``--nsp`` the pooler is not trained. If it was trained, the
    inner layer of a new classification head starts as the checkpoint's pooler, which it replaces.

    Checkpoints of the released TUPE code load into ``bert_tupe_a`` and ``bert_tupe_r`` with
    ``--segment-scheme none``.
    """

    has_segments = True

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        parser.add_argument(
            "--nsp", action="store_true", help="predict whether the second segment follows"
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
        """As RoBERTa's; with ``--nsp`` the second output also has ``nsp_logits`` (B, 2)."""
        x, extra = super().forward(src_tokens, *args, **kwargs)
        if self.nsp_head is not None:
            first = self.first_tokens(extra["features"], src_tokens)  # (B, d)
            extra["nsp_logits"] = self.nsp_head(self.activation(self.pooler(first)))
        return x, extra

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Read fairseq's and TUPE's checkpoints; new heads start from the checkpoint's pooler."""
        prefix = f"{name}." if name else ""
        official = tupe_checkpoints.rename(state_dict, prefix, self.pooler)
        if official and warm_start.starts(self):
            description: Any = tupe_checkpoints.description_of(state_dict)
            state_dict.setdefault(warm_start.DESCRIPTION, description)
        before = dict(state_dict)
        super().upgrade_state_dict_named(state_dict, name)
        if f"{prefix}nsp_head.weight" not in before:
            return  # the pooler was not trained
        for head in self.classification_heads:
            for part in ("weight", "bias"):
                inner = f"{prefix}classification_heads.{head}.dense.{part}"
                pooled = before[f"{prefix}pooler.{part}"]
                if state_dict[inner] is not before.get(inner) and (
                    state_dict[inner].shape == pooled.shape
                ):
                    state_dict[inner] = pooled
        if self.nsp_head is None:
            logger.warning("dropping the checkpoint's next-sentence head, as --nsp is not given")
            for part in ("weight", "bias"):
                del state_dict[f"{prefix}nsp_head.{part}"]


def defaults(scheme: type[PositionScheme]) -> dict[str, Any]:
    """BERT's defaults for a scheme's options."""
    return {**diet_roberta.defaults(scheme), "segment_scheme": scheme.segment_scheme}


register_architectures("diet_bert", "bert", SIZES, defaults)
