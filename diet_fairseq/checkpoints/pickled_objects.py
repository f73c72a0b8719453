"""The names that a checkpoint's pickle may use, and what each of them stands for.

PyTorch's ``weights_only`` calls an allowed name with any arguments, and lets a file set any
attribute of the result, ``__class__`` among them. So the names of argparse and NumPy in a pickle
stand for classes that record arguments and state and act on neither; `plain.plain` replaces each
record by the object that it describes, once every part of it is checked. The functions here take
the place of PyTorch's, and of Python's codecs, which accept more than a checkpoint needs.
"""

import math
import pickletools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pickle import UnpicklingError
from typing import Any, Self
from unittest import mock

import numpy as np
import torch
from torch import Tensor, _weights_only_unpickler

#: tuples in tuples: Python's own hash of a million of them ends the process
DEEPEST_TUPLE = 50


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


def encode_latin1(text: Any, encoding: Any) -> bytes:
    """``_codecs.encode`` in a pickle, which writes bytes as text; other codecs may take hours."""
    if type(text) is not str or type(encoding) is not str or encoding != "latin1":
        raise UnpicklingError("text in another encoding than latin1")
    return text.encode("latin-1")


def rebuild_tensor(
    storage: Any, offset: Any, size: Any, stride: Any, _requires_grad: Any = None, *_: Any
) -> Tensor:
    """A tensor within the memory of its storage, which PyTorch's own function may enlarge."""
    if type(storage) is not torch.storage.TypedStorage:
        raise UnpicklingError("a tensor without a storage")
    shape = (*size, *stride, offset) if type(size) is type(stride) is tuple else (None,)
    if any(type(number) is not int or number < 0 for number in shape):
        raise UnpicklingError("a tensor without a shape")
    steps = [(n - 1) * step for n, step in zip(size, stride, strict=True)]
    if math.prod(size) and offset + sum(steps) >= storage._size():
        raise UnpicklingError("a tensor of more numbers than are in the file")
    tensor = torch.empty(0, dtype=storage.dtype, device=storage._untyped_storage.device)
    return tensor.set_(storage._untyped_storage, offset, size, stride)


def rebuild_parameter(data: Any, *_: Any) -> Tensor:
    """The numbers of an `nn.Parameter`."""
    if type(data) is not Tensor:
        raise UnpicklingError("a parameter that is not a tensor")
    return data


def _allowed_names() -> dict[str, Any]:
    # storages and data types have no attributes that a pickle could call
    names = {
        name: value
        for name, value in _weights_only_unpickler._get_allowed_globals().items()
        if isinstance(value, (torch.serialization.StorageType, torch.dtype))
    }
    return names | {
        "argparse.Namespace": RecordedNamespace,
        "numpy.ndarray": RecordedArray,
        "numpy.dtype": RecordedDType,
        # as NumPy 2 and NumPy 1 write them
        **{f"numpy.{core}.multiarray._reconstruct": RecordedArray for core in ("_core", "core")},
        **{f"numpy.{core}.multiarray.scalar": RecordedScalar for core in ("_core", "core")},
        "_codecs.encode": encode_latin1,
        "collections.OrderedDict": OrderedDict,
        "torch.Size": torch.Size,
        "torch._utils._rebuild_tensor": rebuild_tensor,
        "torch._utils._rebuild_tensor_v2": rebuild_tensor,
        "torch._utils._rebuild_parameter": rebuild_parameter,
    }


#: name in a pickle -> the object that it stands for
CHECKPOINT_NAMES = _allowed_names()


@contextmanager
def only_checkpoint_names(other_types: tuple[type, ...] = ()) -> Iterator[None]:
    """Within this context, ``weights_only`` in this thread takes the names of a checkpoint alone.

    Names of ``other_types``, and those that the user allows, are taken as well.
    """
    names = CHECKPOINT_NAMES | {
        f"{kind.__module__}.{kind.__qualname__}": kind for kind in other_types
    }
    thread, allowed = threading.get_ident(), _weights_only_unpickler._get_allowed_globals

    def checkpoint_names() -> dict[str, Any]:
        return names if threading.get_ident() == thread else allowed()

    with mock.patch.object(_weights_only_unpickler, "_get_allowed_globals", checkpoint_names):
        yield


def check_depth(pickle: Any) -> None:
    """Refuse tuples that are nested too deeply for Python's hash.

    Args:
        pickle: bytes, or a file that is read to the end of its next pickle

    Raises:
        UnpicklingError: there are some, or the pickle is damaged
    """
    stack: list[int] = []  # depths of tuples; -1 for a mark
    memo: dict[Any, int] = {}
    try:
        for operation, argument, _ in pickletools.genops(pickle):
            name, inside = operation.name, []
            if pickletools.markobject in operation.stack_before:
                while (depth := stack.pop()) >= 0:
                    inside.append(depth)
                del stack[len(stack) - operation.stack_before.index(pickletools.markobject) :]
            elif operation.stack_before:
                count = len(operation.stack_before)
                inside = stack[-count:]
                del stack[-count:]
            if "PUT" in name:
                memo[argument] = stack[-1]
            elif "GET" in name:
                stack.append(memo[argument])
            elif "TUPLE" in name:
                stack.append(1 + max(inside, default=0))
                if stack[-1] > DEEPEST_TUPLE:
                    raise UnpicklingError(f"tuples nested more than {DEEPEST_TUPLE} deep")
            else:
                marks = operation.stack_after == [pickletools.markobject]
                stack += [-1 if marks else 0] * len(operation.stack_after)
    except (ValueError, LookupError) as error:
        raise UnpicklingError(f"damaged ({error})") from error


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
