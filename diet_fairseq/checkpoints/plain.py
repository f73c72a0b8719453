"""Plain data: a copy of a checkpoint's content that is safe to traverse.

PyTorch's ``weights_only`` refuses programs, but not values that contain themselves, lists that are
shared so often that a traversal never ends, tensors without memory, or objects whose attributes
replace their methods. The copy has only the types that are listed for a place in the checkpoint,
and only objects that are built here from checked values.
"""

import math
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..errors import one_line
from .pickled_objects import (
    RecordedArray,
    RecordedNamespace,
    RecordedScalar,
    build_array,
    build_scalar,
)

_VALUES = frozenset({type(None), bool, int, float, str})
_CONTAINERS = frozenset({list, tuple, dict})
_TENSORS = frozenset({Tensor})
_NUMPY = frozenset({RecordedArray, RecordedScalar})
#: first key of a value's path in a checkpoint -> allowed types; all other keys: `_OTHER_TYPES`
_TYPES_BY_KEY = {
    **dict.fromkeys(("args", "cfg"), _VALUES | _CONTAINERS | {RecordedNamespace}),
    **dict.fromkeys(
        ("model", "last_optimizer_state"), _VALUES | _CONTAINERS | _TENSORS | {OrderedDict}
    ),
}
_OTHER_TYPES = _VALUES | _CONTAINERS | _TENSORS | _NUMPY | {OrderedDict, torch.Size, torch.dtype}
_KEYS = (type(None), bool, int, float, str)
_DEEPEST = 50
_MOST_VALUES = 20_000_000  # a shared container counts at each place


class Refused(ValueError):
    """A checkpoint holds a value that is not allowed. The caller adds the file's name."""


def copy_plain_data(
    state: Any, other_types: tuple[type, ...] = (), most_bytes: float = math.inf
) -> Any:
    """A copy made of plain containers, numbers, text and dense tensors.

    Shared values stay shared, and tensors keep their memory, at most ``most_bytes`` bytes in total.
    Values of ``other_types`` are not copied; the configuration (``args`` and ``cfg``) has none.

    Raises:
        Refused: ``state`` holds anything else
    """
    # ids of a value and of the types that its place allows -> its copy and the number of values in
    # the copy; None: the value is being copied
    copies: dict[tuple[int, int], tuple[Any, int] | None] = {}
    storages: set[int] = set()

    def copy(value: Any, path: tuple[str, ...]) -> tuple[Any, int]:
        # a shared value is checked at every place, because places may allow different types
        kind, allowed = type(value), _TYPES_BY_KEY.get(path[0] if path else "", _OTHER_TYPES)
        if kind in other_types and allowed is not _TYPES_BY_KEY["cfg"]:
            return value, 1
        if kind not in allowed:
            name = kind.__name__.removeprefix("Recorded")
            raise _refusal(path, f"is of the type {name}, which checkpoints don't have there")
        if kind in _VALUES or kind is torch.dtype:
            return value, 1
        place = id(value), id(allowed)
        if place not in copies:
            copies[place] = None
            copies[place] = copy_object(value, path)
        result = copies[place]
        if result is None:
            raise _refusal(path, "contains itself")
        return result

    def copy_object(value: Any, path: tuple[str, ...]) -> tuple[Any, int]:
        nonlocal most_bytes
        kind = type(value)
        if len(path) > _DEEPEST:
            raise _refusal(path, f"is nested more than {_DEEPEST} deep")
        if kind in _TENSORS:
            tensor = _dense(value, path)
            storage = tensor.untyped_storage()
            if storage._cdata not in storages:
                storages.add(storage._cdata)
                most_bytes -= storage.nbytes()
            if most_bytes < 0:
                raise _refusal(path, "is a tensor of more numbers than are in the file")
            return tensor, 1
        if kind in _NUMPY:
            try:
                return (build_array if kind is RecordedArray else build_scalar)(value), 1
            except ValueError as error:
                raise _refusal(path, f"holds {error}") from None
        if kind is RecordedNamespace:
            options = value.state
            if value.args or type(options) is not dict or any(type(k) is not str for k in options):
                raise _refusal(path, "is a Namespace of anything but named options")
            items, size = copy_items(options.items(), path)
            namespace = Namespace()
            vars(namespace).update(items)
            return namespace, size
        if kind in (list, tuple, torch.Size):
            items, size = copy_items(enumerate(value), path)
            return kind(item for _, item in items), size
        items, size = copy_items(dict.items(value), path)
        return kind(items), size

    def copy_items(
        items: Iterable[tuple[Any, Any]], path: tuple[str, ...]
    ) -> tuple[list[tuple[Any, Any]], int]:
        result, size = [], 1
        for key, value in items:
            if type(key) not in _KEYS:
                raise _refusal(path, f"has a key of the type {type(key).__name__}, not a name")
            if type(key) is str and key.startswith("__"):  # `__deepcopy__` would be called
                raise _refusal((*path, key), "is not a name")
            if type(value) in _VALUES:  # most values; the path takes time
                item, values = value, 1
            else:
                item, values = copy(value, (*path, str(key)))
            result.append((key, item))
            size += values
        if size > _MOST_VALUES:
            raise _refusal(path, f"comes to more than {_MOST_VALUES:,} values")
        return result, size

    return copy(state, ())[0]


def _refusal(path: tuple[str, ...], reason: str) -> Refused:
    place = ".".join(map(shorten, path))
    return Refused(f"{shorten(place) or 'what it holds'} {reason}")


def _dense(tensor: Tensor, path: tuple[str, ...]) -> Tensor:
    """The tensor without Python attributes; it must be dense, with its numbers in memory."""
    tensor = Tensor.detach(tensor)  # the file may set an attribute ``detach``
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise _refusal(path, "is a sparse or nested tensor")
    if tensor.is_quantized:
        raise _refusal(path, "is a quantized tensor")
    if tensor.is_meta:
        raise _refusal(path, "is a tensor without numbers (on the device meta)")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise _refusal(path, "is a tensor of more numbers than are in the file")
    return tensor


def shorten(text: str, longest: int = 200) -> str:
    """Text from a checkpoint for a message: one line of at most ``longest`` characters."""
    text = one_line(text[: longest + 1])
    return text if len(text) <= longest else text[: longest - 3] + "..."


def quote(value: Any) -> str:
    """The ``repr`` of a value from a checkpoint, shortened for a message."""
    return shorten(repr(value[:1000] if isinstance(value, str) else value))


def describe_error(error: BaseException) -> str:
    """The type and first line of an error that has no message for users."""
    lines = str(error).strip().splitlines()
    return shorten(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)
