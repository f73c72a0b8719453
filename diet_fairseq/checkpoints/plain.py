"""Plain data: what a checkpoint may be made of, copied piece by piece.

PyTorch's ``weights_only`` keeps programs out, but not oddities: values that contain themselves,
lists shared so often that a walk through them never ends, tensors without memory, objects with
attributes in place of their methods. The copy has none of these.
"""

from argparse import Namespace
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .arrays import Array

_VALUES = (
    *(type(None), bool, int, float, complex, str, bytes, np.int64, np.float64),
    *(torch.dtype, torch.device, torch.Size),
)
_KEYS = (type(None), bool, int, float, str)
_DEEPEST = 50
_LARGEST = 20_000_000  # values, those in shared containers counted each time


class Odd(ValueError):
    """A value that no checkpoint of fairseq's holds: where it stands, and what it is."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.place: list[str] = []

    def __str__(self) -> str:
        return f"{shown('.'.join(reversed(self.place))) or 'what it holds'} {self.args[0]}"


def plain(state: Any, others: tuple[type, ...] = ()) -> Any:
    """A copy of ``state`` of plain containers, numbers, text and dense tensors.

    What is shared stays shared, tensors keep their memory. ``others`` are types to let through.
    Whatever else is there is an `Odd`.
    """
    copies: dict[int, tuple[Any, int]] = {}  # the copy, and its size with all that is in it
    inside: set[int] = set()

    def copied(value: Any, depth: int) -> tuple[Any, int]:
        if type(value) in _VALUES or isinstance(value, others):
            return value, 1
        if id(value) in copies:
            return copies[id(value)]
        if id(value) in inside:
            raise Odd("contains itself")
        if depth > _DEEPEST:
            raise Odd(f"is nested more than {_DEEPEST} deep")
        inside.add(id(value))
        result, size = container(value, depth + 1)
        inside.remove(id(value))
        if size > _LARGEST:
            raise Odd(f"comes to more than {_LARGEST:,} values")
        copies[id(value)] = result, size
        return result, size

    def container(value: Any, depth: int) -> tuple[Any, int]:
        kind = type(value)
        if kind in (Tensor, torch.nn.Parameter):
            return _dense(value), 1
        if kind is Array:
            return value.numbers, 1
        if kind in (list, tuple, set):
            items, size = of(enumerate(value), depth)
            return kind(item for _, item in items), size
        if kind in (dict, OrderedDict):
            items, size = of(dict.items(value), depth)
            return kind(items), size
        if kind is Namespace:
            items, size = of(vars(value).items(), depth)
            return Namespace(**dict(items)), size
        raise Odd(f"is of the type {kind.__name__}, which no checkpoint needs")

    def of(items: Iterable[tuple[Any, Any]], depth: int) -> tuple[list[tuple[Any, Any]], int]:
        result, size = [], 1
        for key, value in items:
            try:
                # An attribute `__deepcopy__`, say, would be called where a method is looked for.
                if not isinstance(key, _KEYS) or str(key).startswith("__"):
                    raise Odd("is not a name")
                copy, more = copied(value, depth)
            except Odd as error:
                error.place.append(str(key))
                raise
            result.append((key, copy))
            size += more
        return result, size

    return copied(state, 0)[0]


def _dense(tensor: Tensor) -> Tensor:
    """The tensor without its Python attributes; one that isn't numbers in memory is `Odd`."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise Odd("is a sparse or nested tensor")
    if tensor.is_quantized:
        raise Odd("is a quantized tensor")
    if tensor.is_meta:
        raise Odd("is a tensor without numbers (on the device meta)")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise Odd("is a tensor of more numbers than are in the file")
    return tensor.detach()


def shown(text: str, longest: int = 200) -> str:
    """Text from a checkpoint, on one line and without characters that control a terminal."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: longest + 1])
    return text if len(text) <= longest else text[: longest - 3] + "..."


def quoted(value: Any) -> str:
    """The same, as Python writes it."""
    return shown(repr(value[:1000] if isinstance(value, str) else value))


def reason(error: BaseException) -> str:
    """The type and first line of an error that has no message for users."""
    lines = str(error).strip().splitlines()
    return shown(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)
