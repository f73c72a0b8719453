"""``--store-ema`` in a run that starts from a checkpoint without an average of parameters.

fairseq says that the average begins at the checkpoint's parameters, but has removed them by then.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any

_kept: ContextVar[bool] = ContextVar("_kept", default=False)


def kept(load_checkpoint: Callable) -> Callable:
    """Let `begun` know whether the trainer keeps an average."""

    @wraps(load_checkpoint)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = _kept.set(self.cfg.ema.store_ema)
        try:
            return load_checkpoint(self, *args, **kwargs)
        finally:
            _kept.reset(before)

    return wrapper


def begun(load_checkpoint_to_cpu: Callable) -> Callable:
    """Take the checkpoint's parameters for the average that it doesn't have."""

    @wraps(load_checkpoint_to_cpu)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        state = load_checkpoint_to_cpu(*args, **kwargs)
        if _kept.get():
            state["extra_state"].setdefault("ema", dict(state["model"]))
        return state

    return wrapper
