"""Checkpoints of TUPE's released code, under the names that parameters have here."""

import logging
from argparse import Namespace

from torch import Tensor, nn

from ..config import PositionConfig
from ..positions.description import describe, to_text

logger = logging.getLogger(__name__)

#: parts of the encoder in TUPE's code, and of ``positions`` in `bert_tupe_*`
PARTS = ("pos", "pos_q_linear", "pos_k_linear", "pos_ln", "relative_attention_bias")


def rename(state_dict: dict[str, Tensor], prefix: str, pooler: nn.Linear) -> bool:
    """Rename the parameters in place; TUPE's code has no pooler, so a new one is initialised.

    Returns:
        whether it is a checkpoint of TUPE's code
    """
    official = False
    for key in list(state_dict):
        start, encoder, name = key.partition(".sentence_encoder.")
        if encoder and name.split(".")[0] in PARTS:
            state_dict[f"{start}{encoder}positions.{name}"] = state_dict.pop(key)
            official = True
    if official and f"{prefix}pooler.weight" not in state_dict:
        logger.warning("the checkpoint of TUPE's code has no pooler: a new one is initialised")
        for part, value in pooler.state_dict().items():
            state_dict[f"{prefix}pooler.{part}"] = value
    return official


def description_of(state_dict: dict[str, Tensor]) -> str:
    """The description of positions in a checkpoint of TUPE's code: [CLS] is untied in all."""
    is_relative = any(".relative_attention_bias." in key for key in state_dict)
    scheme = "tupe_r" if is_relative else "tupe_a"
    options = Namespace(position_scheme=scheme, position_untie_cls="official")
    return to_text(describe(PositionConfig.of(options)))
