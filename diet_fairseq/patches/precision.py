"""Half precision: exact resuming, and ``--bf16`` in commands that ignore it."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .patch import intercepts

logger = logging.getLogger(__name__)

#: in the optimizer's state: parameters as the optimizer has them, before they are rounded
EXACT = "fp32_params"
ROUNDED = "a resumed run in half precision continues from rounded parameters"


@intercepts("fairseq.optim.fp16_optimizer:_FP16OptimizerMixin.state_dict", correctness=ROUNDED)
def save_exact_parameters(state_dict: Callable, self: Any) -> dict[str, Any]:
    return state_dict(self) | {EXACT: [tensor.detach() for tensor in _list_exact(self)]}


@intercepts("fairseq.optim.fp16_optimizer:_FP16OptimizerMixin.load_state_dict", correctness=ROUNDED)
def load_exact_parameters(
    load_state_dict: Callable, self: Any, state: dict[str, Any], *args: Any, **kwargs: Any
) -> None:
    """Load the float32 parameters if they round to the model's."""
    load_state_dict(self, state, *args, **kwargs)
    saved, parameters = state.get(EXACT), _list_exact(self)
    if saved is None:  # a checkpoint from elsewhere
        return
    half = self.fp16_params[0].dtype
    fits = isinstance(saved, list) and len(saved) == len(parameters)
    if fits and all(map(partial(_rounds_to, half), saved, parameters)):
        for exact, parameter in zip(saved, parameters, strict=True):
            parameter.data.copy_(exact)
    else:
        logger.warning(
            f"the checkpoint's float32 parameters do not round to its {half} parameters: the run "
            f"continues from the {half} parameters"
        )


def _list_exact(optimizer: Any) -> list[Tensor]:
    """The float32 parameters: one for each parameter of the model, or a flat one per device."""
    parameters = optimizer.fp32_params
    return list(parameters.values() if isinstance(parameters, dict) else parameters)


def _rounds_to(half: torch.dtype, exact: Any, parameter: Tensor) -> bool:
    """Whether a value is a tensor that rounds to the parameter, which comes from the model."""
    return (
        isinstance(exact, Tensor)
        and exact.dtype == parameter.dtype
        and exact.shape == parameter.shape
        and torch.equal(exact.to(parameter.device, half), parameter.detach().to(half))
    )


@intercepts(
    "fairseq.models.fairseq_model:BaseFairseqModel.prepare_for_inference_",
    correctness="commands that translate and score silently ignore --bf16",
)
def use_bf16(prepare_for_inference: Callable, self: Any, cfg: Any) -> None:
    prepare_for_inference(self, cfg)
    if cfg.common.bf16 and cfg.common_eval.path:  # without a path the option is a checkpoint's
        self.bfloat16()
