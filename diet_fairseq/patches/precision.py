"""Training in half precision: a run that resumes exactly, and one that needs no GPU or TPU."""

import logging
import sys
from collections.abc import Callable
from functools import partial, wraps
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError

logger = logging.getLogger(__name__)

#: in the optimizer's state: parameters as the optimizer has them, before they are rounded
EXACT = "fp32_params"


def with_exact_parameters(state_dict: Callable) -> Callable:
    """``FP16Optimizer.state_dict``: also the float32 parameters, which the model has rounded."""

    @wraps(state_dict)
    def wrapper(self: Any) -> dict[str, Any]:
        return state_dict(self) | {EXACT: [one.detach() for one in _exact(self)]}

    return wrapper


def from_exact_parameters(load_state_dict: Callable) -> Callable:
    """``FP16Optimizer.load_state_dict``: goes on with them, where they are the model's."""

    @wraps(load_state_dict)
    def wrapper(self: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        load_state_dict(self, state, *args, **kwargs)
        saved, ours = state.get(EXACT), _exact(self)
        if saved is None:  # of a checkpoint from elsewhere
            return
        rounded = self.fp16_params[0].dtype
        fits = isinstance(saved, list) and len(saved) == len(ours)
        if not (fits and all(map(partial(_rounds_to, rounded), saved, ours))):
            logger.warning(
                f"the checkpoint's float32 parameters are not those of its model: the run goes on "
                f"from the model's, which are rounded to {rounded}"
            )
            return
        for mine, exact in zip(ours, saved, strict=True):
            mine.data.copy_(exact)

    return wrapper


def _exact(optimizer: Any) -> list[Tensor]:
    """One for each parameter, or flat ones for each device."""
    parameters = optimizer.fp32_params
    return list(parameters.values() if isinstance(parameters, dict) else parameters)


def _rounds_to(rounded: torch.dtype, exact: Any, parameter: Tensor) -> bool:
    """Whether the parameter, which comes from the model, is this tensor as it is rounded."""
    return (
        isinstance(exact, Tensor)
        and exact.dtype == parameter.dtype
        and exact.shape == parameter.shape
        and torch.equal(exact.to(parameter.device, rounded), parameter.detach().to(rounded))
    )


def without_tpu(parse_args_and_arch: Callable) -> Callable:
    """``--bf16`` without ``--tpu``: on a GPU or the CPU, where PyTorch has no TPUs."""

    @wraps(parse_args_and_arch)
    def wrapper(parser: Any, input_args: list[str] | None = None, *rest: Any, **more: Any) -> Any:
        found = parse_args_and_arch(parser, input_args, *rest, **more)
        args = found[0] if isinstance(found, tuple) else found
        if getattr(args, "tpu", False) and find_spec("torch_xla") is None:
            if "--tpu" in (sys.argv[1:] if input_args is None else input_args):
                raise UserError(
                    "--tpu needs the package torch_xla, which is not installed: install it, or "
                    "leave --tpu out"
                )
            args.tpu = False
        return found

    return wrapper


def tensor(*args: Any, **kwargs: Any) -> Tensor:
    """`torch.tensor`, whose ``cuda()`` stays on the CPU where there is no GPU."""
    made = torch.tensor(*args, **kwargs)

    def stays() -> Tensor:
        return made

    if not torch.cuda.is_available():
        made.cuda = stays  # type: ignore[method-assign, assignment]
    return made
