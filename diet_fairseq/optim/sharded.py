"""Tensors that are sharded over processes (``--ddp-backend fully_sharded``), and whole ones.

PyTorch's DTensor is imported where it is used: that takes a second, and few runs shard.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def is_sharded(value: Any) -> bool:
    """Whether it is a DTensor; there is none before its module is imported."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def whole(value: Any) -> Any:
    """The whole tensor, on the CPU; all processes must call this. Other values stay as they are."""
    return value.full_tensor().cpu() if is_sharded(value) else value


def local_part(value: Any, like: Any) -> Any:
    """This process's part of a tensor of the shape of a parameter, as the parameter is sharded."""
    if not is_sharded(like) or getattr(value, "shape", None) != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    there = value.to(like.device)
    # every process has the whole tensor, so none is sent
    return distribute_tensor(there, like.device_mesh, like.placements, src_data_rank=None)


class WholeNorms(TorchFunctionMode):
    """In this context `torch.linalg.norm` of a sharded tensor is that of the whole tensor."""

    def __torch_function__(
        self, function: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        sharded = function is torch.linalg.norm and is_sharded(result)
        return result.full_tensor() if sharded else result
