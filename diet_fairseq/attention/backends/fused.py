"""The backends "sdpa" and "factors": PyTorch's fused attention, which keeps no weights."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...positions.scores import Factors
from ..terms import dense_sum
from .call import AttentionCall


def kernel_width(width: int, dtype: torch.dtype, device: str, masked: bool) -> int:
    """The padded width of vectors for PyTorch's flash attention; ``width`` without padding.

    Flash attention needs a multiple of 8, at most 256, in half precision on CUDA, if nothing is
    masked (PyTorch 2.6 to 2.13, ``sdp_utils.cpp``). Other kernels gain nothing from padding.
    """
    halves = (torch.float16, torch.bfloat16)
    wide = -(-width // 8) * 8
    fits = device == "cuda" and dtype in halves and not masked and wide <= 256
    return wide if fits else width


def avoid_cudnn(masked: bool, device: str) -> AbstractContextManager[None]:
    """A context in which masked calls on a GPU do not use cuDNN's kernel.

    The gradients of this kernel are NaN for a query whose scores are all far below 0, on an H100
    with PyTorch 2.11 to 2.13 (pytorch/pytorch issue 196678).
    """
    if not masked or device != "cuda":
        return nullcontext()
    return sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    )


def widen(x: Tensor, width: int) -> Tensor:
    """x (..., d) -> (..., width), with zeros at the end of its vectors; no copy if d is width."""
    return x if x.size(-1) == width else F.pad(x, (0, width - x.size(-1)))


def sdpa(call: AttentionCall) -> tuple[Tensor, None]:
    """`torch.nn.functional.scaled_dot_product_attention` with the score as its mask."""
    call = call.fold_temperature()
    return attend_fused(call, call.q, call.k, call.v, dense_sum(call.scores, call.layout)), None


def factors(call: AttentionCall) -> tuple[Tensor, None]:
    """Fused attention with the score's factors appended to queries and keys: no score is built."""
    wide = append_factors(call.fold_temperature())
    score = dense_sum(wide.scores, wide.layout)
    # with values of another width PyTorch would use a kernel that builds the score
    v = widen(wide.v, wide.q.size(3))
    return attend_fused(wide, wide.q, wide.k, v, score).narrow(3, 0, call.v.size(3)), None


def append_factors(call: AttentionCall) -> AttentionCall:
    """The call with a score's factors as further columns of queries and keys."""
    factored = next((score for score in call.scores if isinstance(score, Factors)), None)
    if factored is None:
        return call
    q, k = (  # (B, H, T, d_h + r)
        torch.cat([x, columns.expand(*x.shape[:2], -1, -1)], dim=-1)
        for x, columns in zip((call.q, call.k), factored.columns(call.q.dtype), strict=True)
    )
    wide = kernel_width(q.size(3), q.dtype, q.device.type, call.layout.mask is not None)
    q, k = widen(q, wide), widen(k, wide)  # (B, H, T, wide)
    rest = tuple(score for score in call.scores if score is not factored)
    return replace(call, q=q, k=k, scores=rest)


def attend_fused(
    call: AttentionCall, q: Tensor, k: Tensor, v: Tensor, score: Tensor | None
) -> Tensor:
    """PyTorch's fused attention of q, k, v (B, H, T, w), with a score (B|1, H|1, Tq, Tk) or None.

    Returns:
        (B, H, Tq, w)
    """
    mask = call.layout.mask  # (B|1, 1, Tq|1, Tk)
    if score is not None:
        score = score.to(q.dtype)
        mask = score if mask is None else score.masked_fill(mask, float("-inf"))
    elif mask is not None:
        mask = ~mask  # PyTorch's boolean masks are True at visible keys
    with avoid_cudnn(mask is not None, q.device.type):
        return F.scaled_dot_product_attention(q, k, v, mask, call.dropout, scale=1.0)
