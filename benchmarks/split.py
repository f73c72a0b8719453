"""Attention by PyTorch's fused kernels with a detached score, and our kernel for the line alone.

A simpler alternative to `backends.offsets`, which only `benchmarks.device` times, as "split": it
keeps the matrix of scores, but PyTorch's backward pass returns no gradient for it. It supports
neither masks nor dropout.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from diet_fairseq.attention.backends import AttentionCall
from diet_fairseq.attention.backends.offsets import UNLIMITED, Launch, token_major
from diet_fairseq.positions.layout import toeplitz
from diet_fairseq.positions.scores import Offsets

ATEN = torch.ops.aten


class SplitAttention(torch.autograd.Function):
    """softmax(q k^T + toeplitz(line)) v; q (B, H, Tq, d_h), k, v (B, H, Tk, d_h)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, line: Tensor) -> Tensor:
        score = toeplitz(line, q.size(2)).to(q.dtype).contiguous()  # (H, Tq, Tk)
        score = score.expand(len(q), -1, -1, -1)
        if q.device.type == "cuda":
            out, norm, *random = ATEN._scaled_dot_product_efficient_attention(
                q, k, v, score, True, 0.0, False, scale=1.0
            )
        else:
            out, norm = ATEN._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, 0.0, False, attn_mask=score, scale=1.0
            )
            random = []
        ctx.save_for_backward(q, k, v, line, score, out, norm, *random)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        q, k, v, line, score, out, norm, *random = ctx.saved_tensors
        if random:
            *grads, _ = ATEN._scaled_dot_product_efficient_attention_backward(
                *(gradient, q, k, v, score, out, norm, *random, 0.0),
                [True, True, True, False],
                False,
                scale=1.0,
            )
        else:
            grads = ATEN._scaled_dot_product_flash_attention_for_cpu_backward(
                gradient, q, k, v, out, norm, 0.0, False, attn_mask=score, scale=1.0
            )
        q, k, v = (token_major(x) for x in (q, k, v))
        launch = Launch(q, k, v, line, None, None, UNLIMITED, False, 0.0)
        g = token_major(gradient)
        logs = (norm[..., : q.size(2)] * math.log2(math.e)).contiguous()  # (B, H, Tq)
        delta, far = launch.delta(g, token_major(out)), {"BM": 0, "BN": 0}  # there are no far tiles
        return *grads, launch.line_gradient(g, logs, delta, logs, far)


def split(call: AttentionCall) -> tuple[Tensor, None]:
    """`SplitAttention`, as a backend."""
    [score] = call.scores
    if not isinstance(score, Offsets) or call.layout.mask is not None or call.dropout:
        raise ValueError("split attention is for scores of offsets, without mask and dropout")
    line = score.line.float().expand(call.q.size(1), -1).contiguous()
    return SplitAttention.apply(call.q, call.k, call.v, line), None
