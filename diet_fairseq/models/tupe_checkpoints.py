"""Checkpoints of TUPE's released code, under the names that parameters have here."""

import logging

from torch import Tensor, nn

logger = logging.getLogger(__name__)

#: what TUPE's code keeps on its encoder, and `bert_tupe_*` in ``positions``
PARTS = ("pos", "pos_q_linear", "pos_k_linear", "pos_ln", "relative_attention_bias")


def rename(state_dict: dict[str, Tensor], prefix: str, pooler: nn.Linear) -> None:
    """Rename the parameters in place; TUPE's code has no pooler, so a new one is initialised."""
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
