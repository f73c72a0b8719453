"""NumPy's numbers in a checkpoint: int64 and float64, built from bytes only.

NumPy's own types take whatever a file gives to their ``__setstate__``, bytes in the place of
pointers included. So the names in NumPy's pickles stand for our own classes here.
"""

from pickle import UnpicklingError
from typing import Any

import numpy as np


class Kind:
    """``numpy.dtype`` in a pickle."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in ("i8", "f8"):
            raise UnpicklingError(f"numbers of the type {code!r}, not int64 or float64")
        self.code = code

    def __setstate__(self, state: Any) -> None:
        _, order, *_ = state
        if order != "<":
            raise UnpicklingError(f"numbers in the byte order {order!r}")

    def numbers(self, raw: Any) -> np.ndarray:
        """The numbers whose memory is ``raw``, which are not changed."""
        if type(raw) is not bytes:
            raise UnpicklingError("numbers that are not made of bytes")
        return np.frombuffer(raw, f"<{self.code}")


class Array:
    """``numpy.ndarray`` in a pickle; its `numbers` take its place when all is read."""

    numbers: np.ndarray

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, raw = state
        numbers = kind.numbers(raw).reshape(shape, order="F" if by_columns else "C")
        self.numbers = numbers.copy(order="K")


def begin_array(*_: Any) -> Array:
    """``_reconstruct`` in a pickle; what the array is made of follows."""
    return Array()


def number(kind: Kind, raw: Any) -> Any:
    """``scalar`` in a pickle: a numpy.int64 or numpy.float64."""
    (result,) = kind.numbers(raw)
    return result


#: What ``weights_only`` is to take for NumPy's names, as NumPy 2 and NumPy 1 write them.
TYPES: list[tuple[Any, str]] = [
    (Array, "numpy.ndarray"),
    (Kind, "numpy.dtype"),
    *((begin_array, f"numpy.{core}.multiarray._reconstruct") for core in ("_core", "core")),
    *((number, f"numpy.{core}.multiarray.scalar") for core in ("_core", "core")),
]
