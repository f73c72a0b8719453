"""Plain data: a copy of a checkpoint's content that is safe to walk through.

PyTorch's ``weights_only`` keeps programs out, but not values that contain themselves, lists that
are shared so often that a walk through them never ends, tensors without memory, and objects with
attributes in place of their methods.
"""

from argparse import Namespace
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import one_line
from .arrays import Array

_VALUES = (
    *(type(None), bool, int, float, complex, str, bytes, np.int64, np.float64),
    *(torch.dtype, torch.device, torch.Size),
)
_KEYS = (type(None), bool, int, float, str)
_DEEPEST = 50
_MOST_VALUES = 20_000_000  # shared containers count each time


class Refused(ValueError):
    """A checkpoint holds a value that none may hold. The caller adds the name of the file."""


def plain(state: Any, other_types: tuple[type, ...] = ()) -> Any:
    """A copy made of plain containers, numbers, text and dense tensors.

    Shared values stay shared, and tensors keep their memory. Values of ``other_types`` stay as they
    are.

    Raises:
        Refused: ``state`` holds anything else
    """
    # id of a value -> its copy and the number of values in it; None: the copy is not complete
    copies: dict[int, tuple[Any, int] | None] = {}

    def copy(value: Any, path: tuple[str, ...]) -> tuple[Any, int]:
        if type(value) in _VALUES or isinstance(value, other_types):
            return value, 1
        if id(value) not in copies:
            copies[id(value)] = None
            copies[id(value)] = copy_object(value, path)
        result = copies[id(value)]
        if result is None:
            raise _refused(path, "contains itself")
        return result

    def copy_object(value: Any, path: tuple[str, ...]) -> tuple[Any, int]:
        kind = type(value)
        if len(path) > _DEEPEST:
            raise _refused(path, f"is nested more than {_DEEPEST} deep")
        if kind in (Tensor, torch.nn.Parameter):
            return _dense(value, path), 1
        if kind is Array:
            return value.numbers, 1
        if kind in (list, tuple, set):
            items, size = copy_items(enumerate(value), path)
            return kind(item for _, item in items), size
        if kind in (dict, OrderedDict):
            items, size = copy_items(dict.items(value), path)
            return kind(items), size
        if kind is Namespace:
            items, size = copy_items(vars(value).items(), path)
            return Namespace(**dict(items)), size
        raise _refused(path, f"is of the type {kind.__name__}, which no checkpoint needs")

    def copy_items(
        items: Iterable[tuple[Any, Any]], path: tuple[str, ...]
    ) -> tuple[list[tuple[Any, Any]], int]:
        result, size = [], 1
        for key, value in items:
            place = (*path, str(key))
            # an attribute such as `__deepcopy__` would be called as a method
            if not isinstance(key, _KEYS) or place[-1].startswith("__"):
                raise _refused(place, "is not a name")
            item, values = copy(value, place)
            result.append((key, item))
            size += values
        if size > _MOST_VALUES:
            raise _refused(path, f"comes to more than {_MOST_VALUES:,} values")
        return result, size

    return copy(state, ())[0]


def _refused(path: tuple[str, ...], reason: str) -> Refused:
    return Refused(f"{shown('.'.join(path)) or 'what it holds'} {reason}")


def _dense(tensor: Tensor, path: tuple[str, ...]) -> Tensor:
    """The tensor without its Python attributes; only numbers in memory are accepted."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise _refused(path, "is a sparse or nested tensor")
    if tensor.is_quantized:
        raise _refused(path, "is a quantized tensor")
    if tensor.is_meta:
        raise _refused(path, "is a tensor without numbers (on the device meta)")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise _refused(path, "is a tensor of more numbers than are in the file")
    return tensor.detach()


def shown(text: str, longest: int = 200) -> str:
    """Text from a checkpoint for a message: one line of at most ``longest`` characters."""
    text = one_line(text[: longest + 1])
    return text if len(text) <= longest else text[: longest - 3] + "..."


def quoted(value: Any) -> str:
    """A value from a checkpoint for a message, as Python writes it."""
    return shown(repr(value[:1000] if isinstance(value, str) else value))


def reason(error: BaseException) -> str:
    """The type and first line of an error that has no message for users."""
    lines = str(error).strip().splitlines()
    return shown(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)
