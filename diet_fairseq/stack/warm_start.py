"""``--finetune-from-model`` across position schemes: what matches is loaded, the rest is logged."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.context import score_terms
from ..positions import PositionScheme
from ..positions.gain import ScoreParameters
from .attention import PositionalAttention
from .lengthening import lengthened

logger = logging.getLogger(__name__)

POSITIONS = {"positions", "cross_positions"}
COMPRESSION = {"compress_k", "compress_v", "compress_layer"}
#: entries of a scheme that describe its parameters, and are nothing without them
DESCRIPTIONS = {"gain", "terms"}
#: parts of a model that may differ from the one it starts from
DIFFERENT = (
    POSITIONS
    | COMPRESSION
    | {"segments", "embed_positions", "embed_segments", "pooler", "nsp_head"}
)


@contextmanager
def starting(model: nn.Module) -> Iterator[None]:
    """While this lasts, the model may start from one of other positions.

    Its options stay in the checkpoints that follow, whose own parameters must all be there.
    """
    vars(model)["starts_from_another"] = True
    try:
        yield
    finally:
        del vars(model)["starts_from_another"]


def parameters_for(model: nn.Module, checkpoint: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The checkpoint's parameters, adapted to the model if training starts from them."""
    if not starts(model):
        return checkpoint
    return adapt(model, lengthened(model, checkpoint))


def starts(model: nn.Module) -> bool:
    """Whether the model is `starting`."""
    return hasattr(model, "starts_from_another")


def adapt(model: nn.Module, checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The checkpoint's parameters as this model's.

    New parameters of positions and segments start at zero (`PositionScheme.zero`), and queries are
    rescaled where the content score has another scale (`PositionScheme.score_terms`): the new model
    computes what the old one did, without those of its positions that are left out.

    If nothing differs, a shape differs, or anything beyond positions, segments and what reads them,
    the checkpoint is returned as it is, and PyTorch's strict load decides.
    """
    own = model.state_dict()
    scale = terms_of(checkpoint)
    checkpoint = with_gains(model, checkpoint)
    fits = {name: tensor for name, tensor in checkpoint.items() if name in own}
    if not any(_positions(name) and not _describes(name) for name in fits):
        # another scheme's parameters are left, and so is what describes them
        fits = {name: tensor for name, tensor in fits.items() if not _describes(name)}
    new = [name for name in own if name not in fits]
    left = [name for name in checkpoint if name not in fits]
    known_scheme = any(map(_positions, fits))
    compressed = any(_parts(name) & COMPRESSION for name in fits)
    if (
        not new + left
        or any(own[name].shape != tensor.shape for name, tensor in fits.items())
        or not all(_parts(name) & DIFFERENT for name in new + left)
        or (known_scheme and any(map(_positions, new)))  # a part of it is lost
        or (compressed and any(_parts(name) & COMPRESSION for name in new + left))
    ):
        return dict(checkpoint)

    for name, module in model.named_modules():
        if not any(parameter.startswith(f"{name}.") for parameter in new):
            continue
        if isinstance(module, PositionScheme):
            module.zero()
        elif name.endswith(("embed_segments", "embed_positions")):
            for parameter in module.parameters():
                nn.init.zeros_(parameter)
    taken = {**model.state_dict(), **fits}
    schemes = tuple(part for part in model.modules() if isinstance(part, PositionScheme))
    rescale = (score_terms(schemes) / scale) ** 0.5
    for name, module in model.named_modules():
        if isinstance(module, PositionalAttention):
            for query in (f"{name}.q_proj.weight", f"{name}.q_proj.bias"):
                taken[query] = taken[query] * rescale
    logger.info("starts from another model, of which %d parameters are taken", len(fits))
    for what, names in (("new here", new), ("not taken", left)):
        if names:
            logger.info("%s: %s", what, ", ".join(_once(names)))
    return taken


def terms_of(checkpoint: Mapping[str, Tensor]) -> int:
    """The `PositionScheme.score_terms` of the scheme that a checkpoint is of."""
    for name, tensor in checkpoint.items():
        if name.endswith("positions.terms"):
            return round(float(tensor))  # an average of checkpoints, too
    return 2 if any("pos_q_linear" in name for name in checkpoint) else 1  # TUPE has 2


def with_gains(model: nn.Module, checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The checkpoint with the gain 1 of schemes whose parameters it holds without a gain."""
    gains = {
        f"{name}.gain": torch.ones((), dtype=torch.float64)
        for name, module in model.named_modules()
        if isinstance(module, ScoreParameters)
        and any(f"{name}.{parameter}" in checkpoint for parameter, _ in module.named_parameters())
    }
    return {**gains, **checkpoint}


def _positions(name: str) -> bool:
    return bool(_parts(name) & POSITIONS)


def _describes(name: str) -> bool:
    return _positions(name) and name.rpartition(".")[2] in DESCRIPTIONS


def _parts(name: str) -> set[str]:
    return set(name.split("."))


def _once(names: Iterable[str]) -> list[str]:
    """The names, those of all layers together."""
    return list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))


def announced(load_checkpoint: Callable) -> Callable:
    """Mark the model while the trainer loads what it starts from."""

    @wraps(load_checkpoint)
    def wrapper(self: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
        if filename != self.cfg.checkpoint.finetune_from_model:
            return load_checkpoint(self, filename, *args, **kwargs)
        with starting(self.get_model()):
            return load_checkpoint(self, filename, *args, **kwargs)

    return wrapper
