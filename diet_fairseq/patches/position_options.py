"""Comparison of a resumed model's position options with those of its checkpoint.

With another scheme or rank the parameters of positions have other names or shapes: loading fails.
With another of `OPTIONS` they may be the same, and mean something else. A model that starts from
another compares descriptions of positions instead (`stack.warm_start`).
"""

import logging
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn

from ..checkpoints.plain import shown

OPTIONS = (
    *("position_input", "position_max_distance", "position_untie_cls", "position_kerple"),
    "position_cross_attention",
    *("position_rope_base", "position_rope_share", "position_rope_scaling"),
)

logger = logging.getLogger(__name__)
#: the trainer that resumes, in one process of a run
trainer: ContextVar[Any] = ContextVar("trainer", default=None)


def compare(path: str, state: dict[str, Any]) -> None:
    """Warn of the resumed model's options that differ from those of its checkpoint."""
    run = trainer.get()
    if run is None:
        return
    for trained, given in differences(state, run.get_model(), run.cfg.model):
        logger.warning(
            f"{path} was trained {trained}, but this model is built {given}: its parameters fit, "
            f"and compute something else; to go on with what it was, build it {trained}"
        )


def differences(state: dict[str, Any], model: nn.Module, options: Any) -> Iterator[tuple[str, str]]:
    """A checkpoint's option and the model's, in words, where they differ and parameters don't.

    Args:
        state: a checkpoint
        model: the model that it is loaded into
        options: the model's
    """
    if position_shapes(state["model"].items()) != position_shapes(model.named_parameters()):
        return
    for name in OPTIONS:
        before, now = (
            args.get(name) if isinstance(args, dict) else getattr(args, name, None)
            for args in (state["cfg"]["model"], options)
        )
        if None not in (before, now) and before != now:
            flag = f"with --{name.replace('_', '-')}"
            yield f"{flag} {shown(str(before))}", f"{flag} {shown(str(now))}"


def position_shapes(parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Any]:
    """Name -> shape of the parameters of positions; a gain is a number, and no parameter."""
    return {
        name: tensor.shape for name, tensor in parameters if "positions." in name and tensor.dim()
    }
