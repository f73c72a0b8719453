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
        match saved:
            case {"state": dict() as state, "param_groups": list() as groups}:
                pass
            case _:
                raise TypeError("no state of an optimizer")
        for values in state.values() if counts == "state" else groups:
            if missing := sorted(needed - values.keys()):  # fairseq notices it in float32 alone
                raise UserError(
                    f"--optimizer {name} can't resume from the checkpoint, which another optimizer "
                    f"wrote: it has no {', '.join(missing)}; take the --optimizer that it was "
                    "trained with, or start a new one with --reset-optimizer"
                )
        parameters = _paired(groups, optimizer.param_groups)
        if not state.keys() <= parameters.keys():
            raise _Unfit("it has moments of parameters that it does not list")
        numbers = ["lr", "eps", "weight_decay"] + ["step"] * (counts == "param_groups")
        return {
            "state": {
                number: _of_parameter(number, values, parameters[number], counts == "state")
                for number, values in state.items()
            },
            "param_groups": [
                {
                    **mine,
                    **{key: _number(key, group.get(key)) for key in numbers},
                    "betas": _betas(group.get("betas")),
                    "params": group["params"],
                }
                for mine, group in zip(optimizer.param_groups, groups, strict=True)
            ],
        }
    except (_Unfit, AttributeError, KeyError, TypeError) as error:
        reason = error if isinstance(error, _Unfit) else "its optimizer's state is damaged"
        raise UserError(
            f"--optimizer {name} can't resume from the checkpoint: {reason}; give an undamaged "
            "one, with the options it was trained with, or start a new one with --reset-optimizer"
        ) from error


class _Unfit(Exception):
    """A state that can't be used, with the reason."""


def _paired(groups: list[Table], ours: list[Table]) -> dict[Any, Tensor]:
    """The parameters by their indices in the checkpoint."""
    theirs, here = ([group["params"] for group in some] for some in (groups, ours))
    sizes = [list(map(len, some)) for some in (theirs, here)]
    if sizes[0] != sizes[1]:
        there, now = (" + ".join(map(str, some)) or "no" for some in sizes)
        raise _Unfit(f"it was trained with {there} parameters, but the model has {now}")
    return dict(zip(chain(*theirs), chain(*here), strict=True))


def _of_parameter(number: Any, saved: Table, parameter: Tensor, has_step: bool) -> Table:
    name = f"of parameter {number!r}"
    moments = {key: _moment(f"{key} {name}", saved.get(key), parameter) for key in MOMENTS}
    if has_step:
        moments["step"] = torch.tensor(_number(f"step {name}", saved.get("step")))
    return moments


def _betas(saved: Any) -> tuple[float, float]:
    match saved:
        case (first, second):
            return _number("beta 1", first, 1), _number("beta 2", second, 1)
    raise _Unfit("its betas are not two")


def _number(name: str, saved: Any, below: int = 2**53) -> float:
    value = number_in(saved)
    if value is None or not 0 <= value < below:
        raise _Unfit(f"its {name} is not a number from 0 to below {below}")
    return value


def number_in(saved: Any) -> float | None:
    """An int or a float, possibly in a tensor; None for anything else."""
    if _is_plain(saved, (torch.int64, *FLOATS)) and saved.numel() == 1:
        saved = saved.item()
    return saved if isinstance(saved, int | float) and not isinstance(saved, bool) else None


def _moment(name: str, value: Any, parameter: Tensor) -> Tensor:
    """A copy with the parameter's type and memory layout, which PyTorch's kernel relies on."""
    if not _is_plain(value, FLOATS):
        raise _Unfit(f"its {name} is not a plain tensor of floating-point numbers")
    if value.shape != parameter.shape:
        there, here = (" x ".join(map(str, t.shape)) or "a number" for t in (value, parameter))
        raise _Unfit(f"its {name} is {there}, but the parameter is {here}")
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
