"""The names that a checkpoint's pickle may use, and the objects that replace them.

PyTorch's ``weights_only`` calls an allowed name with any arguments, and lets a file set any
attribute of the result, ``__class__`` among them. So the names of argparse and NumPy in a pickle
stand for classes that only record arguments and state; `plain.plain` checks every part of a record
and then replaces it by the object that it describes. The functions here replace functions of
PyTorch and Python's codecs, which accept more than a checkpoint needs.
"""

import math
import pickletools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import Any, Self
from unittest import mock

import numpy as np
import torch
from torch import Tensor, _weights_only_unpickler

#: largest depth of nested tuples: Python crashes when it hashes a depth of a million
DEEPEST_TUPLE = 50


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


class TensorBuilder:
    """Builds the tensors of one file; their storages have at most ``most_bytes`` bytes in total."""

    def __init__(self, most_bytes: int) -> None:
        self.bytes_left = most_bytes
        self.storages: set[int] = set()

    def rebuild_tensor(
        self, storage: Any, offset: Any, size: Any, stride: Any, _grad: Any = None, *_: Any
    ) -> Tensor:
        """A tensor within the memory of its storage; PyTorch's function may enlarge the storage."""
        if type(storage) is not torch.storage.TypedStorage:
            raise UnpicklingError("a tensor without a storage")
        if not type(size) is type(stride) is tuple or not len(size) == len(stride) <= 64:
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
            # in files before PyTorch 1.6 numbers follow the pickle, and may be missing
            if getattr(memory, "_torch_load_uninitialized", False):
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
    "collections.OrderedDict": OrderedDict,
    "torch.Size": torch.Size,
    "torch._utils._rebuild_parameter": rebuild_parameter,
}


@contextmanager
def only_checkpoint_names(most_bytes: int, other_types: tuple[type, ...] = ()) -> Iterator[None]:
    """A context in which ``weights_only`` in this thread accepts only the names of a checkpoint.

    It also accepts names of ``other_types``, and names that the user allows. All tensors together
    have at most ``most_bytes`` bytes.
    """
    rebuild_tensor = TensorBuilder(most_bytes).rebuild_tensor
    names = {
        **CHECKPOINT_NAMES,
        "torch._utils._rebuild_tensor": rebuild_tensor,
        "torch._utils._rebuild_tensor_v2": rebuild_tensor,
        **{f"{kind.__module__}.{kind.__qualname__}": kind for kind in other_types},
    }
    thread, allowed = threading.get_ident(), _weights_only_unpickler._get_allowed_globals

    def checkpoint_names() -> dict[str, Any]:
        return names if threading.get_ident() == thread else allowed()

    with mock.patch.object(_weights_only_unpickler, "_get_allowed_globals", checkpoint_names):
        yield


@dataclass(eq=False, slots=True)
class _Value:
    """A value on the pickle machine's stack.

    Attributes:
        depth: levels of tuples in tuples
        size: number of direct parts, or of characters
        parts: the items of a tuple, which may grow after the tuple is built
    """

    depth: int = 0
    size: int = 1
    parts: tuple["_Value", ...] = ()


_MARK = _Value()


def check_cost(pickle: Any, most_size: int) -> None:
    """Refuse a pickle that needs much more time or memory to load than its size suggests.

    Tuples may be nested `DEEPEST_TUPLE` deep. A value that is stored once may be an argument or the
    state of many objects, and each object may copy it.

    Args:
        pickle: bytes, or a file that is read to the end of its next pickle
        most_size: limit of the parts and characters in all copies

    Raises:
        UnpicklingError: the pickle is damaged, or exceeds a limit
    """
    stack: list[_Value] = []
    memo: dict[Any, _Value] = {}
    try:
        for operation, argument, _ in pickletools.genops(pickle):
            name, arguments = operation.name, []
            if pickletools.markobject in operation.stack_before:
                while (value := stack.pop()) is not _MARK:
                    arguments.append(value)
                has_target = operation.stack_before[0] is not pickletools.markobject
            else:
                for _ in operation.stack_before:
                    arguments.append(stack.pop())
                has_target = name in ("APPEND", "SETITEM", "BUILD")
                if has_target:
                    stack.append(arguments.pop())
            if name in ("REDUCE", "NEWOBJ", "BUILD"):
                most_size -= sum(
                    copied.size for value in arguments for copied in (value, *value.parts)
                )
                if most_size < 0:
                    raise UnpicklingError("copies of more than is in the file")
            if has_target:
                stack[-1].size += len(arguments)
            elif "PUT" in name:
                memo[argument] = stack[-1]
            elif "GET" in name:
                stack.append(memo[argument])
            elif name == "MARK":
                stack.append(_MARK)
            elif "TUPLE" in name:
                depth = 1 + max((value.depth for value in arguments), default=0)
                if depth > DEEPEST_TUPLE:
                    raise UnpicklingError(f"tuples nested more than {DEEPEST_TUPLE} deep")
                stack.append(_Value(depth, 1 + len(arguments), tuple(arguments)))
            else:
                length = len(argument) if isinstance(argument, (str, bytes)) else 1
                stack += [_Value(size=length) for _ in operation.stack_after]
    except (ValueError, LookupError) as error:
        raise UnpicklingError(f"damaged ({error})") from error


def build_array(recorded: RecordedArray) -> np.ndarray:
    """An int64 or float64 array that owns its memory.

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
