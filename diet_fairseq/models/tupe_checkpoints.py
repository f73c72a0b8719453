"""Checkpoints of TUPE's released code, under the names that parameters have here."""

import logging
from argparse import Namespace

from torch import Tensor, nn

from ..config import PositionConfig
from ..positions.description import describe, to_text

logger = logging.getLogger(__name__)

#: what TUPE's code keeps on its encoder, and `bert_tupe_*` in ``positions``
PARTS = ("pos", "pos_q_linear", "pos_k_linear", "pos_ln", "relative_attention_bias")


def rename(state_dict: dict[str, Tensor], prefix: str, pooler: nn.Linear) -> bool:
    """Rename the parameters in place; TUPE's code has no pooler, so a new one is initialised.

    Returns:
        whether it is a checkpoint of TUPE's code
    """
    official = False
    for key in list(state_dict):
        start, found, after = key.partition(".sentence_encoder.")
        if found and after.split(".")[0] in PARTS:
            state_dict[f"{start}{found}positions.{after}"] = state_dict.pop(key)
            official = True
    if official and f"{prefix}pooler.weight" not in state_dict:
        logger.warning("the checkpoint of TUPE's code has no pooler: a new one is initialised")
        for part, value in pooler.state_dict().items():
            state_dict[f"{prefix}pooler.{part}"] = value
    return official


def description_of(state_dict: dict[str, Tensor]) -> str:
    """What the positions in a checkpoint of TUPE's code mean: [CLS] is untied in all of them."""
    is_relative = any(".relative_attention_bias." in key for key in state_dict)
    scheme = "tupe_r" if is_relative else "tupe_a"
    options = Namespace(position_scheme=scheme, position_untie_cls="official")
    return to_text(describe(PositionConfig.of(options)))
