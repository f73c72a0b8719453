"""Position options that parameters don't show: is a model given those of its checkpoint?

With another scheme or rank the parameters of positions have other names or shapes: loading fails,
or a warm start says what it takes. With another of `OPTIONS` they may be the same, and mean
something else.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import wraps
from typing import Any

from torch import Tensor, nn

from ...stack import warm_start
from .plain import shown

OPTIONS = ("position_input", "position_max_distance", "position_untie_cls")

logger = logging.getLogger(__name__)
_trainer: ContextVar[Any] = ContextVar("_trainer", default=None)


def known(load_checkpoint: Callable) -> Callable:
    """``Trainer.load_checkpoint``: let `compared` know the model that it is for, on one process."""

    @wraps(load_checkpoint)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = _trainer.set(self if self.is_data_parallel_master else None)
        try:
            return load_checkpoint(self, *args, **kwargs)
        finally:
            _trainer.reset(before)

    return wrapper


def compared(load_checkpoint_to_cpu: Callable) -> Callable:
    """Warn of options that are not those that the checkpoint was trained with.

    A model that starts from the checkpoint compares them itself (`stack.warm_start`).
    """

    @wraps(load_checkpoint_to_cpu)
    def wrapper(path: str, *args: Any, **kwargs: Any) -> Any:
        state = load_checkpoint_to_cpu(path, *args, **kwargs)
        trainer = _trainer.get()
        if trainer is not None and not warm_start.starts(trainer.get_model()):
            for saved, given in differences(state, trainer.get_model(), trainer.cfg.model):
                logger.warning(
                    "%s was trained %s, but this model is built %s: its parameters fit, and "
                    "compute something else; to go on with what it was, build it %s",
                    path, saved, given, saved,
                )  # fmt: skip
        return state

    return wrapper


def differences(state: dict[str, Any], model: nn.Module, options: Any) -> Iterator[tuple[str, str]]:
    """Each option that differs and that the parameters of positions, which are alike, don't show.

    Args:
        state: a checkpoint
        model: what it is loaded into
        options: those of the model

    Yields:
        in words how the checkpoint has the option, and how the model has it
    """
    if of_positions(state["model"].items()) != of_positions(model.named_parameters()):
        return
    for name in OPTIONS:
        before, now = (value(some, name) for some in (state["cfg"]["model"], options))
        if None not in (before, now) and before != now:
            yield said(name, before), said(name, now)


def of_positions(parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Any]:
    """Name -> shape, of those that belong to positions; a gain is a number, and no parameter."""
    return {name: one.shape for name, one in parameters if "positions." in name and one.dim()}


def value(options: Any, name: str) -> Any:
    return options.get(name) if isinstance(options, dict) else getattr(options, name, None)


def said(name: str, value: Any) -> str:
    return f"with --{name.replace('_', '-')} {shown(str(value))}"
