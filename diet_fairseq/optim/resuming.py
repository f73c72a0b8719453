"""Compare the optimizer's state in a checkpoint with the parameters before loading it.

PyTorch loads moments unchecked, and its fused kernel relies on their having the parameter's shape
and memory layout: with others it reads and writes beyond the end.
"""

from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import UserError
from .sharded import is_sharded, local_part

MOMENTS = ("exp_avg", "exp_avg_sq")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Table = dict[Any, Any]


def loadable_state(
    saved: Any, optimizer: Optimizer, name: str, needed: set[str], counts: str
) -> Table:
    """The part of a checkpoint's state that is safe for ``optimizer.load_state_dict``.

    ``counts`` says where the optimizer called ``name`` counts its updates, in the ``state`` of
    every parameter or in its ``param_groups``; the keys ``needed`` there identify its state. As in
    fairseq, only the numbers of a group come from the checkpoint, and no other options.

    Raises `UserError` if the state is damaged, another optimizer's or another model's.
    """
    try:
        state, groups = saved["state"], saved["param_groups"]
        if not isinstance(state, dict) or not isinstance(groups, list):
            raise TypeError
        for values in state.values() if counts == "state" else groups:
            if missing := sorted(needed - values.keys()):  # fairseq notices it in float32 alone
                raise UserError(
                    f"--optimizer {name} can't resume from the checkpoint, which another optimizer "
                    f"wrote: it has no {', '.join(missing)}; take the --optimizer that it was "
                    "trained with, or start a new one with --reset-optimizer"
                )
        parameters = _parameters(groups, optimizer.param_groups)
        if not state.keys() <= parameters.keys():
            raise _Misfit("it has moments of parameters that it does not list")
        numbers = ["lr", "eps", "weight_decay"] + ["step"] * (counts == "param_groups")
        loadable: Table = {"state": {}, "param_groups": []}
        for index, values in state.items():
            loadable["state"][index] = entry = {
                key: _moment(f"{key} of parameter {index!r}", values.get(key), parameters[index])
                for key in MOMENTS
            }
            if counts == "state":
                step = _number(f"step of parameter {index!r}", values.get("step"))
                entry["step"] = torch.tensor(step)
        for default, group in zip(optimizer.param_groups, groups, strict=True):
            checked = {key: _number(key, group.get(key)) for key in numbers}
            betas = group.get("betas")
            if not isinstance(betas, tuple | list) or len(betas) != 2:
                raise _Misfit("its betas are not two")
            betas = tuple(_number(f"beta {i}", beta, 1) for i, beta in enumerate(betas, 1))
            loadable["param_groups"].append(
                default | checked | {"betas": betas, "params": group["params"]}
            )
        return loadable
    except (_Misfit, AttributeError, KeyError, TypeError) as error:
        reason = error if isinstance(error, _Misfit) else "its optimizer's state is damaged"
        raise UserError(
            f"--optimizer {name} can't resume from the checkpoint: {reason}; give an undamaged "
            "one, with the options it was trained with, or start a new one with --reset-optimizer"
        ) from error


class _Misfit(Exception):
    """A state that can't be used, with the reason."""


def _parameters(saved: list[Table], model: list[Table]) -> dict[Any, Tensor]:
    """The model's parameters by their indices in the checkpoint's groups."""
    indices, parameters = ([group["params"] for group in groups] for groups in (saved, model))
    if list(map(len, indices)) != list(map(len, parameters)):
        old, new = (" + ".join(str(len(x)) for x in xs) or "no" for xs in (indices, parameters))
        raise _Misfit(f"it was trained with {old} parameters, but the model has {new}")
    return dict(zip(chain(*indices), chain(*parameters), strict=True))


def _number(name: str, saved: Any, below: int = 2**53) -> float:
    value = number_in(saved)
    if value is None or not 0 <= value < below:
        raise _Misfit(f"its {name} is not a number from 0 to below {below}")
    return value


def number_in(saved: Any) -> float | None:
    """An int or a float, possibly in a tensor; None for anything else."""
    if _is_plain(saved, (torch.int64, *FLOATS)) and saved.numel() == 1:
        saved = saved.item()
    return saved if isinstance(saved, int | float) and not isinstance(saved, bool) else None


def _moment(name: str, value: Any, parameter: Tensor) -> Tensor:
    """A copy with the parameter's type and memory layout, which PyTorch's kernel relies on."""
    if not _is_plain(value, FLOATS):
        raise _Misfit(f"its {name} is not a plain tensor of floating-point numbers")
    if value.shape != parameter.shape:
        old, new = (" x ".join(map(str, t.shape)) or "a number" for t in (value, parameter))
        raise _Misfit(f"its {name} is {old}, but the parameter is {new}")
    if is_sharded(parameter):
        return local_part(value.detach().to(parameter.dtype), parameter)
    return torch.empty_like(parameter, requires_grad=False).copy_(value.detach())


def _is_plain(value: Any, dtypes: tuple[torch.dtype, ...]) -> bool:
    """Whether it is a dense tensor with data in memory."""
    return (
        isinstance(value, Tensor)
        and value.layout is torch.strided
        and not value.is_nested
        and not value.is_meta
        and value.dtype in dtypes
    )
