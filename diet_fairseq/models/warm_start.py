"""``--finetune-from-model`` across position schemes: parameters that fit are loaded."""

import logging
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.context import drop_none, score_terms
from ..config import PositionConfig
from ..errors import UserError
from ..positions import PositionScheme
from ..positions.description import Description, describe, list_differences, parse_description
from ..positions.gain import ScoreParameters
from ..transformer import PositionalAttention
from .growing import grow
from .lengthening import lengthen

logger = logging.getLogger(__name__)

POSITIONS = {"positions", "cross_positions"}
#: modules of cross-attention, which has another scheme than self-attention
CROSS = {"cross_positions", "encoder_attn"}
COMPRESSION = {"compress_k", "compress_v", "compress_layer"}
#: the end of the name of a scheme's `PositionScheme.score_terms`
TERMS = "positions.terms"
#: parts in which a model may differ from the checkpoint that it starts from
DIFFERENT = {"segments", "embed_positions", "embed_segments", "pooler", "nsp_head", "lm_head"}
DIFFERENT |= POSITIONS | COMPRESSION


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
    reasons = list_differences(old, new)
    if not reasons or not any(map(_kind, checkpoint)):
        return checkpoint
    logger.warning(
        "the checkpoint's position parameters are not loaded, because they were trained with other"
        " options (%s): to load them, give these options", ", ".join(reasons),
    )  # fmt: skip
    return {name: tensor for name, tensor in checkpoint.items() if _kind(name) is None}


def adapt(
    model: nn.Module, checkpoint: Mapping[str, Tensor], description: Description | None = None
) -> dict[str, Tensor]:
    """The checkpoint's parameters, converted to parameters of ``model``.

    Missing parameters of positions and segments start at zero (`PositionScheme.zero`). Queries, of
    words and of TUPE's positions, are rescaled where another number of terms shares their scale
    (`PositionScheme.score_terms`): the new model computes the old model's function, except
    for positions that are dropped.

    The checkpoint is returned unchanged if nothing differs, if a shape differs, or if parts other
    than positions, segments and their readers differ; PyTorch's strict load then decides.
    """
    model_state = model.state_dict()
    # the number of terms is the model's own
    parameters = {name: x for name, x in checkpoint.items() if not name.endswith(TERMS)}
    parameters = add_gains(model, parameters)
    taken = {name: tensor for name, tensor in parameters.items() if name in model_state}
    # another scheme's gain is left out with its parameters
    kinds = {_kind(name) for name in taken if not name.endswith(".gain")}
    taken = {name: tensor for name, tensor in taken.items() if _kind(name) in kinds}
    missing = [name for name in model_state if name not in taken and not name.endswith(TERMS)]
    unexpected = [name for name in parameters if name not in taken]
    differing = [_parts(name) for name in missing + unexpected]
    scales = find_query_scales(model, checkpoint, description)
    partial_schemes = {_kind(name) for name in taken} & {_kind(name) for name in missing} - {None}
    compresses = any(_parts(name) & COMPRESSION for name in taken)
    if (
        not (differing or any(scale != 1 for scale in scales.values()))
        or partial_schemes
        or any(model_state[name].shape != tensor.shape for name, tensor in taken.items())
        or not all(parts & DIFFERENT for parts in differing)
        or (compresses and any(parts & COMPRESSION for parts in differing))
    ):
        return dict(checkpoint)

    for name, module in model.named_modules():
        if not any(parameter.startswith(f"{name}.") for parameter in missing):
            continue
        if isinstance(module, PositionScheme):
            module.zero()
        elif name.endswith(("embed_segments", "embed_positions")):
            for parameter in module.parameters():
                nn.init.zeros_(parameter)
    adapted = {**model.state_dict(), **taken}
    for name, scale in scales.items():
        if name in taken:
            adapted[name] = adapted[name] * scale
    logger.info("warm start: %d parameters are loaded from the checkpoint", len(taken))
    for label, names in (("not in the checkpoint", missing), ("not loaded", unexpected)):
        if names:
            without_layers = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names)
            logger.info("%s: %s", label, ", ".join(without_layers))
    return adapted


def find_query_scales(
    model: nn.Module, checkpoint: Mapping[str, Tensor], description: Description | None
) -> dict[str, float]:
    """The factors of the query parameters of a checkpoint that keep the scores unchanged.

    A score is divided by the root of the number of terms that share its scale, and this number may
    differ between the checkpoint and the model.

    Returns:
        name of a parameter -> factor
    """
    old = infer_score_terms(checkpoint) if description is None else description["score_terms"]
    crosses = any(_kind(name) == "cross" for name in checkpoint)
    scales: dict[str, float] = {}
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if not isinstance(module, PositionalAttention):
            continue
        cross = module.is_cross
        shared = modules.get(f"{name.split('.layers.')[0]}.{'cross_' if cross else ''}positions")
        shared = shared if isinstance(shared, PositionScheme) else None
        schemes = drop_none(getattr(module, "positions", None) or shared)
        scale = (score_terms(schemes) / (old if crosses or not cross else 1)) ** 0.5
        queries = [f"{name}.q_proj"]
        for place, part in modules.items():
            if part in schemes:
                queries += [f"{place}.{child}" for child in part.scaled_projections]
        scales |= {f"{query}.{end}": scale for query in queries for end in ("weight", "bias")}
    return scales


def infer_score_terms(checkpoint: Mapping[str, Tensor]) -> int:
    """Infer `PositionScheme.score_terms` of a checkpoint's scheme from the parameters."""
    for name, tensor in checkpoint.items():
        if name.endswith(TERMS):
            return round(float(tensor))  # also of an average of checkpoints
    return 2 if any("pos_q_linear" in name for name in checkpoint) else 1  # TUPE has 2


def add_gains(model: nn.Module, checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The checkpoint with a gain of 1 for every scheme that has parameters but no gain."""
    gains = {
        f"{name}.gain": torch.ones((), dtype=torch.float64)
        for name, module in model.named_modules()
        if isinstance(module, ScoreParameters)
        and any(f"{name}.{parameter}" in checkpoint for parameter, _ in module.named_parameters())
    }
    return {**gains, **checkpoint}


def _kind(name: str) -> str | None:
    """The kind of attention whose positions a parameter belongs to: "self" or "cross"."""
    parts = _parts(name)
    return None if not parts & POSITIONS else "cross" if parts & CROSS else "self"


def _parts(name: str) -> set[str]:
    return set(name.split("."))


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
