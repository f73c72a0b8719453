"""Checkpoints of an ELECTRA's pretraining, whose discriminator other models load."""

import logging

import torch
from torch import Tensor, nn

from ..errors import UserError

logger = logging.getLogger(__name__)

#: parts for pretraining only
PRETRAINING = ("generator", "discriminator_head")
#: parts that the generator may share with the discriminator
EMBEDDINGS = ("embed_positions.", "embed_segments.", "layernorm_embedding.")
#: parts that an ELECTRA lacks: they are newly initialised
MISSING = ("encoder.lm_head.", "pooler.")


def take_discriminator(model: nn.Module, state_dict: dict[str, Tensor], prefix: str) -> None:
    """Drop, in place, the parameters that serve pretraining only, unless the model has them.

    Raises:
        UserError: the discriminator has embeddings of another width, or is missing
    """
    parts = tuple(f"{part}." for part in PRETRAINING)
    model_state = model.state_dict()
    if any(key.startswith(parts) for key in model_state):
        return
    pretraining = [key for key in state_dict if key.removeprefix(prefix).startswith(parts)]
    if not pretraining:
        return
    words = "encoder.sentence_encoder.embed_tokens.weight"
    embedded = state_dict.get(prefix + words)
    if embedded is None:
        raise UserError(
            "the checkpoint has an ELECTRA's generator and no discriminator: start from one that "
            "--criterion electra has trained"
        )
    width = model_state[words].shape[1]
    if embedded.dim() == 2 and embedded.shape[1] != width:
        raise UserError(
            f"the checkpoint's discriminator has token embeddings {embedded.shape[1]} wide, but "
            f"the model's are {width}: give --embedding-size {embedded.shape[1]}"
        )
    logger.info("loading ELECTRA's discriminator; its head and the generator are dropped")
    for key in pretraining:
        del state_dict[key]
    for key, value in model_state.items():
        if key.startswith(MISSING):
            state_dict.setdefault(prefix + key, value)
    tied = f"{prefix}encoder.lm_head.weight"
    if tied in state_dict:
        state_dict[tied] = embedded


def check_embeddings(state_dict: dict[str, Tensor], prefix: str) -> None:
    """Refuse a generator whose embeddings differ from the discriminator's, where they are shared.

    Raises:
        UserError: they differ; loading would silently keep one of them
    """
    generator, discriminator = f"{prefix}generator.encoder.", f"{prefix}encoder.sentence_encoder."
    for key, value in state_dict.items():
        part = key.removeprefix(generator)
        shared = state_dict.get(discriminator + part) if part.startswith(EMBEDDINGS) else None
        if part != key and shared is not None and not torch.equal(value, shared):
            raise UserError(
                f"the checkpoint's generator has {part} of its own, but this model's shares the "
                "discriminator's: give --generator-embeddings own, as in version 0.2, or another "
                "checkpoint"
            )
