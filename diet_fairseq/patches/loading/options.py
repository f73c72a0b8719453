"""Position options that parameters don't show: is a model given those of its checkpoint?

With another `--arch`, size or rank the parameters don't fit, and loading fails. With another of
these they do, and mean something else.
"""

import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import wraps
from typing import Any

from .plain import shown

#: of any scheme, and of one alone
OF_ALL = ("position_input",)
OF_A_SCHEME = ("position_max_distance", "position_untie_cls")

logger = logging.getLogger(__name__)
_model: ContextVar[Any] = ContextVar("_model", default=None)


def known(load_checkpoint: Callable) -> Callable:
    """``Trainer.load_checkpoint``: let `compared` know the options of the model that it is for."""

    @wraps(load_checkpoint)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = _model.set(self.cfg.model)
        try:
            return load_checkpoint(self, *args, **kwargs)
        finally:
            _model.reset(before)

    return wrapper


def compared(load_checkpoint_to_cpu: Callable) -> Callable:
    """Warn of options that are not those that the checkpoint was trained with."""

    @wraps(load_checkpoint_to_cpu)
    def wrapper(path: str, *args: Any, **kwargs: Any) -> Any:
        state = load_checkpoint_to_cpu(path, *args, **kwargs)
        model = _model.get()
        if model is not None:
            for saved, given in differences(state["cfg"]["model"], model):
                logger.warning(
                    "%s was trained %s, but this model is built %s: its parameters fit, and "
                    "compute something else; to go on with what it was, build it %s",
                    path, saved, given, saved,
                )  # fmt: skip
        return state

    return wrapper


def differences(saved: Any, given: Any) -> Iterator[tuple[str, str]]:
    """Each option that differs: in words how the checkpoint has it, and how the model has it."""

    def value(options: Any, name: str) -> Any:
        return options.get(name) if isinstance(options, dict) else getattr(options, name, None)

    same_scheme = value(saved, "position_scheme") == value(given, "position_scheme")
    for name in OF_ALL + (OF_A_SCHEME if same_scheme else ()):
        before, now = value(saved, name), value(given, name)
        if None not in (before, now) and before != now:
            yield said(name, before), said(name, now)


def said(name: str, value: Any) -> str:
    return f"with --{name.replace('_', '-')} {shown(str(value))}"
