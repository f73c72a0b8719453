"""cuDNN's attention with a score of low rank, or with a score that all sentences share.

cuDNN's kernel is the fastest, but returns no gradient for an added score. Therefore PyTorch's
`scaled_dot_product_attention` never uses this kernel for a score that needs a gradient. Here a
kernel of ours computes the gradient.

The factors of a score of low rank become further columns of queries and keys. cuDNN's kernel takes
values that are narrower than these vectors. PyTorch's other kernels need values of the same width,
so the products with values cost more. With heads of 64 numbers and 64 columns of factors they
compute 14 products of n x n x 64 numbers forward and backward, and cuDNN's kernel computes 11.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...positions.layout import Layout
from ...positions.scores import Factors
from ..terms import dense_sum
from .call import AttentionCall, kernels_fit
from .fused import append_factors, sdpa
from .offsets import column_sizes, is_recorded, kernels, precision, token_major

# Notation: B sentences, H heads, T queries and keys, d_h width of a head.

ATEN = torch.ops.aten
#: the length is a multiple of this number, because cuDNN's gradients may be NaN at other lengths
#: (pytorch/pytorch issue 196678)
STEP = 128
#: largest width of queries and keys
MAX_WIDTH = 128
#: queries and keys of a tile
TILE = 64
#: smallest number of programs; the batch is split into parts to reach this number
MIN_PROGRAMS = 1024


def cudnn(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
    """The backend "cudnn": cuDNN's kernel, or `sdpa` for calls that it can't compute."""
    call = call.fold_temperature()
    _, heads, queries, width = call.q.shape
    if (
        queries != call.k.size(2)
        or is_recorded(call.q)
        or not cudnn_fits(call.layout, call.q.dtype, call.q.device, width, call.dropout)
    ):
        return sdpa(call)
    if len(call.scores) == 1 and isinstance(call.scores[0], Factors):
        wide = append_factors(call)
        if factors_fit(width, wide.q.size(3) - width):
            return attend(wide.q, wide.k, wide.v, None)[0], None
    score = dense_sum(call.scores, call.layout)
    if score is None or len(score) != 1:
        return sdpa(call)
    score = score.to(call.q.dtype).expand(1, heads, -1, -1).contiguous()
    return CudnnAttention.apply(call.q, call.k, call.v, score), None


def cudnn_fits(
    layout: Layout, dtype: torch.dtype, device: torch.device, width: int, dropout: float
) -> bool:
    """Whether cuDNN's kernel is safe for a call with a score, and has the right length."""
    queries, keys = layout.query_positions.size(1), layout.key_positions.size(1)
    return (
        device.type == "cuda"
        and dtype in (torch.float16, torch.bfloat16)
        and kernels_fit(device, dtype, width)
        and width % 8 == 0
        and queries == keys
        and keys % STEP == 0
        and layout.padding_mask is None
        and not layout.causal
        and layout.window is None
        and not dropout
    )


def factors_fit(width: int, rank: int) -> bool:
    """Whether factors of this rank can be further columns of queries and keys of this width."""
    return rank > 0 and width + rank <= MAX_WIDTH


class CudnnAttention(torch.autograd.Function):
    """softmax(q k^T + score) v; q, k, v (B, H, T, d_h), score (1, H, T, T) of their type."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, score: Tensor) -> Tensor:
        out, norm, *rest = attend(q, k, v, score)
        ctx.rest = rest  # lengths and random numbers, which need no gradient
        ctx.save_for_backward(q, k, v, score, out, norm)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, score, out, norm = ctx.saved_tensors
        grads = attend_backward(gradient, q, k, v, score, out, norm, ctx.rest)
        if not ctx.needs_input_grad[3]:
            return *grads, None
        return *grads, compute_score_gradient(gradient, q, k, v, score, out, norm)


def attend(q: Tensor, k: Tensor, v: Tensor, score: Tensor | None) -> tuple[Any, ...]:
    """The output, the logarithms of softmax's denominators, and arguments for the backward pass.

    Only a score that needs a gradient needs `CudnnAttention`.
    """
    return ATEN._scaled_dot_product_cudnn_attention(
        q, k, v, score, True, 0.0, False, False, scale=1.0
    )


def attend_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, score: Tensor, out: Tensor, norm: Tensor,
    rest: list[Any],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k and v."""
    query_ends, key_ends, queries, keys, seed, offset, _ = rest
    return ATEN._scaled_dot_product_cudnn_attention_backward(
        *(gradient, q, k, v, out, norm, seed, offset, score, query_ends, key_ends, queries, keys),
        *(0.0, False),
        scale=1.0,
    )


def warps(width: int) -> int:
    """The warps of a program; wide heads have too many numbers for the registers of four."""
    return 4 if width <= 64 else 8


def compute_score_gradient(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, score: Tensor, out: Tensor, norm: Tensor
) -> Tensor:
    """The gradient of the score, (1, H, T, T) in its type, summed over the sentences.

    Args:
        gradient: the gradient of the output, (B, H, T, d_h), the shape of q, k, v and out
        q: scaled; k, v: keys and values
        score: (1, H, T, T)
        out: the output
        norm: natural logarithms of the softmax's denominators, B H T float32 numbers
    """
    kernels()  # raises an error without a suitable Triton
    from .score_kernels import score_gradient

    batch, heads, tokens, width = q.shape
    g, q, k, v = (token_major(x) for x in (gradient, q, k, v))
    delta = (g.float() * out.float()).sum(-1).contiguous()  # (B, H, T)
    norm = norm.reshape(batch, heads, tokens).contiguous()
    tiles = (tokens // TILE) ** 2
    parts = min(batch, -(-MIN_PROGRAMS // (tiles * heads)))
    sentences = -(-batch // parts)
    parts = -(-batch // sentences)
    sums = norm.new_empty(parts, heads, tokens, tokens)
    with torch.cuda.device_of(q):
        score_gradient[(tiles, heads, parts)](
            *(g, q, k, v, score, norm, delta, sums, batch, heads, tokens, sentences),
            **column_sizes(width),
            BM=TILE,
            BN=TILE,
            P=precision(),
            num_warps=warps(width),
            num_stages=2,
        )
    return sums.sum(0, keepdim=True).to(score.dtype)
