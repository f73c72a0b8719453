"""Comparison of an optimizer's state in a checkpoint with the parameters, before it is loaded.

PyTorch loads moments unchecked, and its fused kernel relies on the parameter's shape and memory
layout: with another shape or layout it reads and writes out of bounds.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import UserError
from .sharded import is_sharded, shard_like

MOMENTS = ("exp_avg", "exp_avg_sq")
Table = dict[Any, Any]


def loadable_state(
    saved: Any, optimizer: Optimizer, name: str, needed: set[str], counts: str
) -> Table:
    """The part of a checkpoint's state that is safe for ``optimizer.load_state_dict``.

    As in fairseq, only a group's numbers come from the checkpoint, not its other options.

    Args:
        name: the value of ``--optimizer``, for errors
        needed: keys in ``counts`` that identify the optimizer's state
        counts: where the optimizer counts updates: "state" (of a parameter) or "param_groups"

    Raises:
        UserError: the state is damaged, or belongs to another optimizer or model
    """
    numbers = ["lr", "eps", "weight_decay"] + ["step"] * (counts == "param_groups")
    parameters: Table = {}
    loadable: Table = {"state": {}, "param_groups": []}
    try:
        state, groups = saved["state"], saved["param_groups"]
        for entry in state.values() if counts == "state" else groups:
            if missing := sorted(needed - entry.keys()):  # fairseq checks it only in float32
                raise ValueError(f"another optimizer wrote it: it has no {', '.join(missing)}")
        for group, default in zip(groups, optimizer.param_groups, strict=True):
            parameters |= zip(group["params"], default["params"], strict=True)
            beta_1, beta_2 = (_number(beta, below=1) for beta in group["betas"])
            checked: Table = {key: _number(group[key]) for key in numbers}
            checked |= {"betas": (beta_1, beta_2), "params": group["params"]}
            loadable["param_groups"].append(default | checked)
        for index, values in state.items():
            moments = {key: _moment(values[key], parameters[index]) for key in MOMENTS}
            if counts == "state":
                moments["step"] = torch.tensor(_number(values["step"]))
            loadable["state"][index] = moments
        return loadable
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f"--optimizer {name} can't resume from the checkpoint, whose optimizer state does not "
            f"fit ({error}); give an undamaged checkpoint and the options of its run, or start "
            "with a new optimizer state (--reset-optimizer)"
        ) from error


def _number(saved: Any, below: int = 2**53) -> float:
    """An int or a float, possibly in a tensor."""
    value = saved.item() if isinstance(saved, Tensor) else saved
    if not 0 <= value < below:
        raise ValueError(f"a number is {value}, not from 0 to below {below}")
    return value


def _moment(value: Any, parameter: Tensor) -> Tensor:
    """A copy with the parameter's type and memory layout, which PyTorch's kernel relies on."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise ValueError("a moment is not a tensor of floating-point numbers")
    if value.shape != parameter.shape:
        old, new = (" x ".join(map(str, t.shape)) or "a number" for t in (value, parameter))
        raise ValueError(f"a moment is {old}, but its parameter {new}")
    if is_sharded(parameter):
        return shard_like(value.detach().to(parameter.dtype), parameter)
    return torch.empty_like(parameter, requires_grad=False).copy_(value.detach())
