"""PyTorch's FlexAttention, which adds the score within its kernel and has a gradient for it."""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._python_dispatch import _get_current_dispatch_mode

from .call import AttentionCall
from .reference import reference


def flex(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
    """`torch.nn.attention.flex_attention`, compiled but on a CPU, where it has no gradient.

    It has no dropout; with one this is the reference. The gradient of the score is summed in any
    order, so that two runs differ in their last digits.
    """
    on_cpu = call.q.device.type == "cpu"
    if call.dropout or (on_cpu and _get_current_dispatch_mode()):  # it runs in no such mode
        return reference(call)
    shape = (*call.q.shape[:3], call.k.size(2))  # (B, H, Tq, Tk)
    score, mask = (
        None if one is None else one.expand(shape) for one in (call.term.dense(), call.layout.mask)
    )

    def added(value: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if score is not None:
            value = value + score[b, h, i, j]
        return value if mask is None else torch.where(mask[b, h, i, j], -torch.inf, value)

    attend = flex_attention if on_cpu else compiled()
    return attend(call.q, call.k, call.v, score_mod=added, scale=1.0), None


@cache
def compiled() -> Any:
    """Once for all calls: otherwise each would be compiled anew."""
    return torch.compile(flex_attention)
