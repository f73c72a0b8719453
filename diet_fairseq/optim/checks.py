"""Checks of the values of optimizers' options; invalid ones raise `UserError`."""

from collections.abc import Iterable
from typing import Any

from ..errors import UserError
from ..literals import literal


def betas(flag: str, given: str | Iterable[float]) -> tuple[float, float]:
    """Two numbers, given as text on the command line, or as a list in a configuration file."""
    try:
        first, second = map(_number, literal(given) if isinstance(given, str) else given)
        if 0 <= first < 1 and 0 <= second < 1:
            return first, second
    except (TypeError, ValueError):
        pass
    raise UserError(
        f"{flag} must be two numbers from 0 to below 1, but is {given!r}: write '(0.9, 0.999)'"
    )


def positive(flag: str, value: float) -> float:
    if 0 < value < float("inf"):
        return value
    raise UserError(f"{flag} must be a number above 0, but is {value}: write 1e-6, say")


def not_negative(flag: str, value: float) -> float:
    if 0 <= value < float("inf"):
        return value
    raise UserError(f"{flag} must be a number of at least 0, but is {value}: write 0.01, say")


def state_has(needed: set[str], having: Iterable[Iterable[str]], optimizer: str) -> None:
    """Refuse the state of another optimizer, which fairseq would load in fp16 and bf16.

    ``having`` has the names of the checkpoint's values, for each part of its state.
    """
    for names in having:
        missing = sorted(needed - set(names))
        if missing:
            raise UserError(
                f"--optimizer {optimizer} can't resume from the checkpoint, which another "
                f"optimizer wrote: it has no {', '.join(missing)}; take the --optimizer that it "
                "was trained with, or start a new one with --reset-optimizer"
            )


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"no number: {value!r}")
    return float(value)
