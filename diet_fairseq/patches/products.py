"""``--bf16`` on a CPU without instructions for it: matrix products in float32, rounded once.

PyTorch's own products of bfloat16 take 10 to 40 times as long as those of float32 there. With
instructions for bfloat16 a product is summed in float32, too, and rounded once.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

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
        slow = self.cfg.common.bf16 and self.device.type == "cpu" and are_slow()
        products: AbstractContextManager[Any] = InFloat32() if slow else nullcontext()
        with products:
            return step(self, *args, **kwargs)

    return wrapper
