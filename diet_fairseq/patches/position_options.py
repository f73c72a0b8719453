"""Position options that parameters don't show: is a model given those of its checkpoint?

With another scheme or rank the parameters of positions have other names or shapes: loading fails.
With another of `OPTIONS` they may be the same, and mean something else. A model that starts from
another compares descriptions of positions instead (`stack.warm_start`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from contextvars import ContextVar
from functools import wraps
from typing import Any

from torch import Tensor, nn

from ..checkpoints.file import check_regular
from ..checkpoints.plain import shown
from ..stack import warm_start

OPTIONS = (
    *("position_input", "position_max_distance", "position_untie_cls", "position_kerple"),
    *("position_rope_base", "position_rope_share", "position_rope_scaling"),
)

logger = logging.getLogger(__name__)
#: the trainer that goes on from a checkpoint, on one process of a run
_trainer: ContextVar[Any] = ContextVar("_trainer", default=None)


def load_for_model(load_checkpoint: Callable) -> Callable:
    """``Trainer.load_checkpoint`` of a regular file, with its options compared (`compare`).

    A model that ``--finetune-from-model`` loads is told so (`warm_start.starting`). fairseq takes a
    pipe or a folder for no checkpoint, and trains from scratch.
    """

    @wraps(load_checkpoint)
    def wrapper(self: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
        check_regular(filename)
        starts = filename == self.cfg.checkpoint.finetune_from_model
        token = _trainer.set(self if self.is_data_parallel_master and not starts else None)
        try:
            with warm_start.starting(self.get_model()) if starts else nullcontext():
                return load_checkpoint(self, filename, *args, **kwargs)
        finally:
            _trainer.reset(token)

    return wrapper


def compare(path: str, state: dict[str, Any]) -> None:
    """Warn of a model's options that are not those that its checkpoint was trained with."""
    trainer = _trainer.get()
    if trainer is None:
        return
    for trained, given in differences(state, trainer.get_model(), trainer.cfg.model):
        logger.warning(
            "%s was trained %s, but this model is built %s: its parameters fit, and compute "
            "something else; to go on with what it was, build it %s",
            path, trained, given, trained,
        )  # fmt: skip


def differences(state: dict[str, Any], model: nn.Module, options: Any) -> Iterator[tuple[str, str]]:
    """Each option that differs and that the parameters of positions, which are alike, don't show.

    Args:
        state: a checkpoint
        model: the model that it is loaded into
        options: the model's

    Yields:
        in words the checkpoint's option, and the model's
    """
    if position_shapes(state["model"].items()) != position_shapes(model.named_parameters()):
        return
    for name in OPTIONS:
        before, now = (_value(some, name) for some in (state["cfg"]["model"], options))
        if None not in (before, now) and before != now:
            yield _in_words(name, before), _in_words(name, now)


def position_shapes(parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Any]:
    """Name -> shape of the parameters of positions; a gain is a number, and no parameter."""
    return {
        name: tensor.shape for name, tensor in parameters if "positions." in name and tensor.dim()
    }


def _value(options: Any, name: str) -> Any:
    return options.get(name) if isinstance(options, dict) else getattr(options, name, None)


def _in_words(name: str, value: Any) -> str:
    return f"with --{name.replace('_', '-')} {shown(str(value))}"
