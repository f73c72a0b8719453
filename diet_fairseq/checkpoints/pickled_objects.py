"""Python's and NumPy's objects in a pickle, recorded as data.

PyTorch's ``weights_only`` calls an allowed name with any arguments, and lets a file set any
attribute of the result, ``__class__`` among them. So the names of argparse and NumPy in a pickle
stand for the classes here, which record arguments and state and act on neither. `plain.plain`
replaces each record by the object that it describes, once every part of it is checked.
"""

import math
from typing import Any, Self

import numpy as np


class RecordedObject:
    """The arguments and the state from which a pickle builds an object; neither is checked yet."""

    __slots__ = ("args", "state")
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> Self:
        self = object.__new__(cls)
        self.args, self.state = args, None
        return self

    def __setstate__(self, state: Any) -> None:
        self.state = state


class RecordedNamespace(RecordedObject):
    """``argparse.Namespace`` in a pickle."""

    __slots__ = ()


class RecordedDType(RecordedObject):
    """``numpy.dtype`` in a pickle."""

    __slots__ = ()


class RecordedArray(RecordedObject):
    """``numpy.ndarray`` in a pickle, and the function that makes an empty one."""

    __slots__ = ()


class RecordedScalar(RecordedObject):
    """A number of NumPy's in a pickle."""

    __slots__ = ()


#: what ``weights_only`` takes for a name, as NumPy 2 and NumPy 1 write them
CHECKPOINT_TYPES: list[tuple[Any, str]] = [
    (RecordedNamespace, "argparse.Namespace"),
    (RecordedArray, "numpy.ndarray"),
    (RecordedDType, "numpy.dtype"),
    *((RecordedArray, f"numpy.{core}.multiarray._reconstruct") for core in ("_core", "core")),
    *((RecordedScalar, f"numpy.{core}.multiarray.scalar") for core in ("_core", "core")),
]


def build_array(recorded: RecordedArray) -> np.ndarray:
    """An int64 or float64 array with memory of its own.

    Raises:
        ValueError: the record describes anything else
    """
    state = recorded.state
    if type(state) is not tuple or len(state) != 5:
        raise ValueError("an array without a state")
    _, shape, dtype, by_columns, raw = state
    if type(shape) is not tuple or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("an array without a shape")
    if type(by_columns) is not bool:
        raise ValueError("an array without an order")
    numbers = _read_numbers(dtype, raw)
    if math.prod(shape) != numbers.size:
        raise ValueError(f"{numbers.size:,} numbers in an array of another shape")
    return numbers.reshape(shape, order="F" if by_columns else "C").copy(order="K")


def build_scalar(recorded: RecordedScalar) -> np.int64 | np.float64:
    """A numpy.int64 or numpy.float64.

    Raises:
        ValueError: the record describes anything else
    """
    if len(recorded.args) != 2:
        raise ValueError("a number without a type or value")
    numbers = _read_numbers(*recorded.args)
    if numbers.size != 1:
        raise ValueError(f"{numbers.size:,} numbers in the place of one")
    return numbers[0]


def _read_numbers(dtype: Any, raw: Any) -> np.ndarray:
    """A read-only array (n,) on the memory of ``raw``."""
    if type(dtype) is not RecordedDType:
        raise ValueError("numbers without a type")
    code = dtype.args[0] if dtype.args else None
    if type(code) is not str or code not in ("i8", "f8"):
        name = repr(code[:20]) if type(code) is str else type(code).__name__
        raise ValueError(f"numbers of the type {name}, not int64 or float64")
    state = dtype.state
    if type(state) is not tuple or len(state) < 2 or type(state[1]) is not str:
        raise ValueError("numbers without a byte order")
    if state[1] != "<":
        raise ValueError(f"numbers in the byte order {state[1][:20]!r}")
    if type(raw) is not bytes:
        raise ValueError("numbers that are not made of bytes")
    if len(raw) % 8:
        raise ValueError("numbers that are cut off")
    return np.frombuffer(raw, f"<{code}")
