"""Conversion between full tensors and the shards of ``--ddp-backend fully_sharded`` (DTensor).

DTensor is imported where it is used, because the import takes a second and few runs need it.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def is_sharded(value: Any) -> bool:
    """Whether the value is a DTensor, which can't exist before its module is imported."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def gather_full_tensor(value: Any) -> Any:
    """The full tensor of a sharded tensor, on the CPU; other values are returned unchanged.

    All processes must call this.
    """
    return value.full_tensor().cpu() if is_sharded(value) else value


def shard_like(value: Any, like: Any) -> Any:
    """``value``, sharded like the parameter ``like`` if this is sharded and of equal shape."""
    if not is_sharded(like) or getattr(value, "shape", None) != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    # every process has the full tensor, so nothing is sent
    return distribute_tensor(
        value.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )


class FullNorms(TorchFunctionMode):
    """A context in which `torch.linalg.norm` of a sharded tensor is the full tensor's norm."""

    def __torch_function__(
        self, function: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        is_norm = function is torch.linalg.norm and is_sharded(result)
        return result.full_tensor() if is_norm else result
