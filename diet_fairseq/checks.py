"""Rules for the numbers of options: each returns the value, or raises a `UserError` about it."""

from collections.abc import Iterable
from typing import Any, TypeVar

from .errors import UserError
from .literals import literal

Number = TypeVar("Number", int, float)
#: options that cost time and memory without parameters, by parts of their names, and the largest
#: values that a file from elsewhere may give them
LARGEST = {"positions": 1 << 20, "position_max_distance": 1 << 16, "position_clip": 1 << 16}


def not_below(flag: str, value: Number, least: Number) -> Number:
    """At least ``least`` and finite."""
    if least <= value < float("inf"):
        return value
    raise UserError(f"{flag} must be at least {least}, but is {value}")


def positive(flag: str, value: float, usual: str = "") -> float:
    """Above 0 and finite; ``usual`` is a value to suggest."""
    if 0 < value < float("inf"):
        return value
    raise UserError(f"{flag} must be a number above 0, but is {value}{_advice(usual)}")


def not_negative(flag: str, value: float, usual: str = "") -> float:
    """At least 0 and finite; ``usual`` is a value to suggest."""
    if 0 <= value < float("inf"):
        return value
    raise UserError(f"{flag} must be a number of at least 0, but is {value}{_advice(usual)}")


def _advice(usual: str) -> str:
    return f": {usual} is usual" if usual else ""


def betas(flag: str, given: str | Iterable[float]) -> tuple[float, float]:
    """Adam's two rates, given as text on the command line, or as a list in a configuration file."""
    try:
        first, second = map(_number, literal(given) if isinstance(given, str) else given)
        if 0 <= first < 1 and 0 <= second < 1:
            return first, second
    except (TypeError, ValueError):
        pass
    raise UserError(
        f"{flag} must be two numbers from 0 to below 1, but is {given!r}: write '(0.9, 0.999)'"
    )


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"no number: {value!r}")
    return float(value)
