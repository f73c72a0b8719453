"""``--bf16`` where fairseq ignores it, and on a CPU without instructions for it.

There PyTorch's own products of bfloat16 take 10 to 40 times as long as those of float32, so they
are computed in float32 and rounded once, as instructions for bfloat16 do, too.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .sharding import COMPUTES_IN

logger = logging.getLogger(__name__)

PRODUCTS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.baddbmm.default,
}


class InFloat32(TorchDispatchMode):
    """While this lasts, products of bfloat16 on a CPU are computed in float32 and rounded."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in PRODUCTS and args[0].dtype is torch.bfloat16 and args[0].device.type == "cpu":
            wide = (one.float() if isinstance(one, Tensor) else one for one in args)
            return func(*wide, **kwargs or {}).bfloat16()
        return func(*args, **kwargs or {})


@cache
def are_slow() -> bool:
    """Whether PyTorch multiplies bfloat16 on this CPU without oneDNN."""
    one_dnn = torch.backends.mkldnn.is_available()
    return not (one_dnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def quick(step: Callable) -> Callable:
    """``Trainer.train_step`` and ``valid_step``."""

    @wraps(step)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        sharded = getattr(self._model, COMPUTES_IN, None) is torch.bfloat16
        rounded = self.cfg.common.bf16 or sharded
        slow = rounded and self.device.type == "cpu" and are_slow()
        products: AbstractContextManager[Any] = InFloat32() if slow else nullcontext()
        with products:
            return step(self, *args, **kwargs)

    return wrapper


def at_inference(prepare_for_inference: Callable) -> Callable:
    """``prepare_for_inference_``, where a command that translates or scores is given ``--bf16``."""

    @wraps(prepare_for_inference)
    def wrapper(self: Any, cfg: Any) -> None:
        prepare_for_inference(self, cfg)
        if not (cfg.common.bf16 and cfg.common_eval.path):  # without a path it is a checkpoint's
            return
        if next(self.parameters()).device.type == "cpu" and are_slow():
            logger.info("--bf16 is not used: this CPU has no instructions for it")
        else:
            self.bfloat16()

    return wrapper
