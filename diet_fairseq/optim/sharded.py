"""Tensors that are spread over processes (``--ddp-backend fully_sharded``), and whole ones."""

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.overrides import TorchFunctionMode


def whole(value: Any) -> Any:
    """The whole tensor, on the CPU; all processes must ask for it. Anything else stays as it is."""
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def parted(value: Any, like: Any) -> Any:
    """This process's part of a tensor of the shape of a parameter, as the parameter is parted."""
    if not isinstance(like, DTensor) or getattr(value, "shape", None) != like.shape:
        return value
    there = value.to(like.device)
    # every process has the whole tensor, so none is sent
    return distribute_tensor(there, like.device_mesh, like.placements, src_data_rank=None)


class WholeNorms(TorchFunctionMode):
    """In this context `torch.linalg.norm` of a tensor that is spread is a number everywhere."""

    def __torch_function__(
        self, function: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = function(*args, **(kwargs or {}))
        spread = function is torch.linalg.norm and isinstance(found, DTensor)
        return found.full_tensor() if spread else found
