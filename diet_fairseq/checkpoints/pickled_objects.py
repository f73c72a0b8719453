"""The names that a checkpoint's pickle may use, and the objects that replace them.

PyTorch's ``weights_only`` calls an allowed name with any arguments, and lets a file set any
attribute of the result, ``__class__`` among them. So the names of argparse and NumPy in a pickle
stand for classes that only record arguments and state; `plain.copy_plain_data` checks every part of
a record and then replaces it by the object that it describes. The functions here replace functions
of PyTorch and Python's codecs, which accept more than a checkpoint needs.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pickle import UnpicklingError
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, _weights_only_unpickler

#: largest number of dimensions of an array or a tensor
MOST_DIMENSIONS = 64


class RecordedObject:
    """The unchecked arguments and state from which a pickle builds an object."""

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
    """``numpy.ndarray`` in a pickle, and the function that creates an empty array."""

    __slots__ = ()


class RecordedScalar(RecordedObject):
    """A NumPy scalar in a pickle."""

    __slots__ = ()


def encode_latin1(text: Any, encoding: Any) -> bytes:
    """``_codecs.encode``, by which pickles store bytes as text; other codecs may run for hours."""
    if type(text) is not str or type(encoding) is not str or encoding != "latin1":
        raise UnpicklingError("text in another encoding than latin1")
    return text.encode("latin-1")


def build_ordered_dict(*args: Any) -> OrderedDict:
    """An empty dictionary: pickles set its items later, and arguments could be of any length."""
    if args:
        raise UnpicklingError("an OrderedDict with arguments")
    return OrderedDict()


def build_size(*args: Any) -> torch.Size:
    """``torch.Size`` of a tuple of integers; PyTorch's class iterates any argument."""
    if len(args) != 1 or type(args[0]) is not tuple or any(type(n) is not int for n in args[0]):
        raise UnpicklingError("a size without integers")
    return torch.Size(args[0])


class TensorBuilder:
    """Builds the tensors of one file.

    Args:
        most_bytes: limit of the bytes of all storages
        is_archive: whether storages are filled; in files before PyTorch 1.6 their numbers follow
            the pickle, and may be missing
    """

    def __init__(self, most_bytes: int, is_archive: bool) -> None:
        self.bytes_left, self.is_archive = most_bytes, is_archive
        self.storages: set[int] = set()

    def rebuild_tensor(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        _grad: Any = None,
        _hooks: Any = None,
        metadata: Any = None,
    ) -> Tensor:
        """A tensor within the memory of its storage; PyTorch's function may enlarge the storage."""
        if metadata is not None:  # complex numbers whose sign is not in memory
            raise UnpicklingError("a conjugate or negative view of a tensor")
        if type(storage) is not torch.storage.TypedStorage:
            raise UnpicklingError("a tensor without a storage")
        if (
            not type(size) is type(stride) is tuple
            or not len(size) == len(stride) <= MOST_DIMENSIONS
        ):
            raise UnpicklingError("a tensor without a shape")
        if any(type(number) is not int or number < 0 for number in (*size, *stride, offset)):
            raise UnpicklingError("a tensor without a shape")
        steps = [(n - 1) * step for n, step in zip(size, stride, strict=True)]
        if math.prod(size) and offset + sum(steps) >= storage._size():
            raise UnpicklingError("a tensor of more numbers than are in the file")
        memory = storage._untyped_storage
        if memory._cdata not in self.storages:
            self.storages.add(memory._cdata)
            self.bytes_left -= memory.nbytes()
            if self.bytes_left < 0:
                raise UnpicklingError("tensors of more numbers than are in the file")
            if not self.is_archive:
                torch.empty(0, dtype=torch.uint8, device=memory.device).set_(memory).zero_()
        tensor = torch.empty(0, dtype=storage.dtype, device=memory.device)
        return tensor.set_(memory, offset, size, stride)


def rebuild_parameter(data: Any, *_: Any) -> Tensor:
    """The numbers of an `nn.Parameter`."""
    if type(data) is not Tensor:
        raise UnpicklingError("a parameter that is not a tensor")
    return data


#: name in a pickle -> the object that it stands for
CHECKPOINT_NAMES: dict[str, Any] = {
    # storages and data types have no attributes that a pickle could call
    name: value
    for name, value in _weights_only_unpickler._get_allowed_globals().items()
    if isinstance(value, (torch.serialization.StorageType, torch.dtype))
} | {
    "argparse.Namespace": RecordedNamespace,
    "numpy.ndarray": RecordedArray,
    "numpy.dtype": RecordedDType,
    # as NumPy 2 and NumPy 1 write them
    **{f"numpy.{core}.multiarray._reconstruct": RecordedArray for core in ("_core", "core")},
    **{f"numpy.{core}.multiarray.scalar": RecordedScalar for core in ("_core", "core")},
    "_codecs.encode": encode_latin1,
    "collections.OrderedDict": build_ordered_dict,
    "torch.Size": build_size,
    "torch._utils._rebuild_parameter": rebuild_parameter,
}


def checkpoint_names(builder: TensorBuilder, other_types: tuple[type, ...]) -> dict[str, Any]:
    """`CHECKPOINT_NAMES`, names of ``other_types``, and names of functions that build tensors."""
    rebuild_tensor = builder.rebuild_tensor
    return {
        **CHECKPOINT_NAMES,
        "torch._utils._rebuild_tensor": rebuild_tensor,
        "torch._utils._rebuild_tensor_v2": rebuild_tensor,
        **{f"{kind.__module__}.{kind.__qualname__}": kind for kind in other_types},
    }


@contextmanager
def only_names(names: dict[str, Any]) -> Iterator[None]:
    """A context in which ``weights_only`` in this thread accepts only ``names``.

    It also accepts names that the user allows. PyTorch has no argument for names, and only this
    function can replace the names that it accepts in every file.
    """
    thread, allowed = threading.get_ident(), _weights_only_unpickler._get_allowed_globals

    def allowed_names() -> dict[str, Any]:
        return names if threading.get_ident() == thread else allowed()

    _weights_only_unpickler._get_allowed_globals = allowed_names  # type: ignore[assignment]
    try:
        yield
    finally:
        _weights_only_unpickler._get_allowed_globals = allowed


def build_array(recorded: RecordedArray) -> np.ndarray:
    """An int64 or float64 array that owns its memory.

    Raises:
        ValueError: the record describes anything else
    """
    state = recorded.state
    if type(state) is not tuple or len(state) != 5:
        raise ValueError("an array without a state")
    _, shape, dtype, by_columns, raw = state
    if type(shape) is not tuple or len(shape) > MOST_DIMENSIONS:
        raise ValueError("an array without a shape")
    if any(type(size) is not int or size < 0 for size in shape):
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
        raise ValueError(f"{numbers.size:,} numbers where one is expected")
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
        raise ValueError("numbers that are not stored as bytes")
    if len(raw) % 8:
        raise ValueError("truncated numbers")
    return np.frombuffer(raw, f"<{code}")
