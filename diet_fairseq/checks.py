"""Checks of options' numbers, which return the value or raise a `UserError`."""

import ast
from collections.abc import Iterable
from typing import TypeVar

from .errors import UserError

Number = TypeVar("Number", int, float)
#: parts of the names of options that cost time and memory without parameters -> largest values in
#: untrusted files
LARGEST = {"positions": 1 << 20, "position_max_distance": 1 << 16, "position_clip": 1 << 16}


def not_below(flag: str, value: Number, least: Number) -> Number:
    """Check that the value is at least ``least`` and finite."""
    if least <= value < float("inf"):
        return value
    raise UserError(f"{flag} must be at least {least}, but is {value}")


def positive(flag: str, value: float, usual: str = "") -> float:
    """Check that the value is above 0 and finite; the error suggests ``usual``."""
    if 0 < value < float("inf"):
        return value
    advice = f": {usual} is usual" if usual else ""
    raise UserError(f"{flag} must be a number above 0, but is {value}{advice}")


def not_negative(flag: str, value: float, usual: str) -> float:
    """Check that the value is at least 0 and finite; the error suggests ``usual``."""
    if 0 <= value < float("inf"):
        return value
    raise UserError(f"{flag} must be a number of at least 0, but is {value}: {usual} is usual")


def betas(flag: str, value: str | Iterable[float]) -> tuple[float, float]:
    """Check Adam's two rates: text on the command line, or a list in a configuration file."""
    try:
        first, second = ast.literal_eval(value) if isinstance(value, str) else value
        if {type(first), type(second)} <= {int, float} and 0 <= first < 1 and 0 <= second < 1:
            return float(first), float(second)
    except (SyntaxError, TypeError, ValueError):
        pass
    raise UserError(
        f"{flag} must be two numbers from 0 to below 1, but is {value!r}: write '(0.9, 0.999)'"
    )
