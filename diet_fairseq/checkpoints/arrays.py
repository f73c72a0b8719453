"""NumPy's numbers in a checkpoint: int64 and float64, built from bytes alone.

NumPy's types pass whatever a file holds to their ``__setstate__``, even bytes as pointers. So the
names in NumPy's pickles stand for the classes and functions here.
"""

from pickle import UnpicklingError
from typing import Any

import numpy as np


class DType:
    """``numpy.dtype`` in a pickle."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in ("i8", "f8"):
            raise UnpicklingError(f"numbers of the type {code!r}, not int64 or float64")
        self.code = code

    def __setstate__(self, state: Any) -> None:
        _, order, *_ = state
        if order != "<":
            raise UnpicklingError(f"numbers in the byte order {order!r}")

    def from_bytes(self, raw: Any) -> np.ndarray:
        """A read-only array on the memory of ``raw``."""
        if type(raw) is not bytes:
            raise UnpicklingError("numbers that are not made of bytes")
        return np.frombuffer(raw, f"<{self.code}")


class Array:
    """``numpy.ndarray`` in a pickle; `plain.plain` replaces it by its ``numbers``."""

    numbers: np.ndarray

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, by_columns, raw = state
        numbers = dtype.from_bytes(raw).reshape(shape, order="F" if by_columns else "C")
        self.numbers = numbers.copy(order="K")


def reconstruct(*_: Any) -> Array:
    """``_reconstruct`` in a pickle: an array whose state follows."""
    return Array()


def scalar(dtype: DType, raw: Any) -> Any:
    """``scalar`` in a pickle: a numpy.int64 or numpy.float64."""
    (number,) = dtype.from_bytes(raw)
    return number


#: what ``weights_only`` takes for NumPy's names, as NumPy 2 and NumPy 1 write them
TYPES: list[tuple[Any, str]] = [
    (Array, "numpy.ndarray"),
    (DType, "numpy.dtype"),
    *((reconstruct, f"numpy.{core}.multiarray._reconstruct") for core in ("_core", "core")),
    *((scalar, f"numpy.{core}.multiarray.scalar") for core in ("_core", "core")),
]
