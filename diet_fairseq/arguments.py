"""Types of command-line arguments: numbers with a lower limit."""

import math
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def at_least(least: Number) -> Callable[[str], Number]:
    """For ``add_argument(type=...)``: a finite number of ``least``'s type, not below it."""
    kind = type(least)

    def read(text: str) -> Number:
        value = kind(text)
        if not (least <= value and math.isfinite(value)):
            rule = f"at least {least:g} and finite" if kind is float else f"at least {least}"
            rule = rule if math.isfinite(least) else "a finite number"
            raise ArgumentTypeError(f"must be {rule}, but is {text}")
        return value

    read.__name__ = kind.__name__  # argparse says "invalid int value" of other text
    return read
