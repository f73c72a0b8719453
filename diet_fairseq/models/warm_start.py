"""``--finetune-from-model`` across position schemes: parameters that fit are loaded."""

import logging
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..config import PositionConfig
from ..errors import UserError
from ..positions.description import (
    Description,
    describe,
    list_differences,
    parse_description,
    select_kind,
)
from ..transformer.scheme_change import adapt, attention_kind
from .growing import grow
from .lengthening import lengthen

logger = logging.getLogger(__name__)


@dataclass
class CheckpointLoad:
    """A model that loads a checkpoint.

    Attributes:
        is_warm_start: whether the checkpoint may have other positions than the model (not in a
            resumed run)
        description: the checkpoint's positions; None until its configuration has been read
        ends_in_mask: whether a translation model's task has added <mask> to its dictionary
    """

    model: Any
    is_warm_start: bool
    description: Description | None = None
    ends_in_mask: bool = False


_current_load: ContextVar[CheckpointLoad | None] = ContextVar("_current_load", default=None)


class WarmStart:
    """A model that can start from a checkpoint with other position schemes."""

    def load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Like fairseq's, but ``--finetune-from-model`` allows another position scheme."""
        start = current_warm_start(self)
        if start is not None:
            state_dict = keep_shared_model(state_dict)
            self.upgrade_state_dict(state_dict)
            if start.description is not None:  # otherwise only names and shapes are compared
                new = describe(PositionConfig.from_args(self.args))
                state_dict = drop_incomparable(state_dict, start.description, new)
            is_encoder = not hasattr(self, "decoder")
            state_dict = grow(self, state_dict, is_encoder or start.ends_in_mask)
            state_dict = adapt(self, lengthen(self, state_dict), start.description)
        fairseq_model: Any = super()
        return fairseq_model.load_state_dict(state_dict, *args, **kwargs)


@contextmanager
def checkpoint_loading(model: Any, starts: bool = True) -> Iterator[None]:
    """Mark ``model`` as loading a checkpoint, for a warm start or to resume.

    A resumed run must find all of its parameters, although its options still name the checkpoint of
    its warm start.
    """
    token = _current_load.set(CheckpointLoad(model, starts))
    try:
        yield
    finally:
        _current_load.reset(token)


def is_warm_start() -> bool:
    """Whether a model is loading a checkpoint for a warm start."""
    load = _current_load.get()
    return load is not None and load.is_warm_start


def current_warm_start(model: Any) -> CheckpointLoad | None:
    """The warm start that ``model`` is loading, or None."""
    load = _current_load.get()
    return load if load is not None and load.is_warm_start and load.model is model else None


def keep_shared_model(checkpoint: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of ``models.PAIR``, if a model of `multilingual_translation` shares them.

    Raises:
        UserError: the parameters of the pairs differ
    """
    if not checkpoint or not all(name.startswith("models.") for name in checkpoint):
        return checkpoint
    shared: dict[str, Tensor] = {}
    for name, tensor in checkpoint.items():
        pair, rest = name.split(".", 2)[1:]
        if not torch.equal(shared.setdefault(rest, tensor), tensor):
            raise UserError(
                f"--finetune-from-model has an encoder or a decoder for each language ({rest} of "
                f"{pair} differs): only models of --share-encoders --share-decoders can be used"
            )
    return shared


def drop_incomparable(
    checkpoint: Mapping[str, Tensor], old: Description, new: Description
) -> Mapping[str, Tensor]:
    """The checkpoint without position parameters that have another meaning in this model."""
    if old.get("input") != new["input"]:
        logger.warning(
            "the checkpoint has --position-input %s, but this model has %s: input positions are not"
            " loaded", old.get("input"), new["input"],
        )  # fmt: skip
    reasons: dict[str, None] = {}
    comparable = {}
    for name, tensor in checkpoint.items():
        differences = []
        if attention_kind(name) is not None:
            differences = list_differences(select_kind(old, name), select_kind(new, name))
        reasons |= dict.fromkeys(differences)
        if not differences:
            comparable[name] = tensor
    if not reasons:
        return checkpoint
    logger.warning(
        "%s checkpoint's position parameters are not loaded, because they were trained with other"
        " options (%s): to load them, give these options",
        "some of the" if any(map(attention_kind, comparable)) else "the", ", ".join(reasons),
    )  # fmt: skip
    return comparable


def record_description(state: dict[str, Any], ends_in_mask: bool = False) -> Description | None:
    """Record the description of a checkpoint's positions for the model that loads it.

    Args:
        ends_in_mask: see `CheckpointLoad`
    """
    load = _current_load.get()
    if load is None or not isinstance(load.model, WarmStart):
        return None
    load.description = derive_description(state["cfg"]["model"])
    load.ends_in_mask = ends_in_mask
    return load.description


def compare_descriptions(path: str, state: dict[str, Any], ends_in_mask: bool = False) -> None:
    """Log how the positions of a checkpoint differ from the positions of the resumed model.

    Args:
        ends_in_mask: see `CheckpointLoad`
    """
    description, load = record_description(state, ends_in_mask), _current_load.get()
    if description is None or load is None or load.is_warm_start:
        return
    new = describe(PositionConfig.from_args(load.model.args))
    reasons = list_differences(description, new, converted=())
    if reasons:
        logger.warning(
            "%s was trained with other position options (%s): its parameters fit this model, but"
            " the model computes another function; give the options of the checkpoint",
            path, ", ".join(reasons),
        )  # fmt: skip


def derive_description(options: Any) -> Description | None:
    """The description that a checkpoint's model options contain or imply.

    None: the options have no position scheme, or an unknown scheme.
    """
    given = dict(options) if isinstance(options, Mapping) else dict(vars(options or Namespace()))
    if given.get("position_scheme") is None:
        return None
    try:
        with torch.device("meta"):  # the sizes are untrusted
            derived = describe(PositionConfig.from_args(Namespace(**given)))
        # an older text may lack names that were added later
        return derived | (parse_description(given.get("position_description")) or {})
    except (UserError, TypeError, ValueError):
        return None
