"""Attention whose score of every offset is read by a Triton kernel: no Tq x Tk matrix is kept.

It gives what the reference does on an H100, the one GPU that has run it, and in Triton's
interpreter (``TRITON_INTERPRET=1``) on a CPU.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ...errors import UserError
from .call import AttentionCall, offsets_fit
from .reference import reference

# Notation: B sentences, H heads, Tq queries, Tk keys, d_h width of a head.


def offsets(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
    """`offset_attention`, or the reference where dropout, other scores or `offsets_fit` forbid it.

    Gradients of queries and scores are summed in any order: two runs differ in their last digits.

    Raises:
        UserError: Triton is needed and can't be imported
    """
    term, layout, (batch, heads, queries, width) = call.term, call.layout, call.q.shape
    forbidden = call.dropout or term.score is not None or term.factors
    if forbidden or term.line is None or not offsets_fit(call.q.device, call.q.dtype, width):
        return reference(call)
    line, _ = term.line
    line = line.float().contiguous().expand(heads, -1)  # (H, Tq + Tk - 1)
    padding = layout.hidden
    if padding is not None:
        padding = padding.expand(batch, -1).contiguous()  # (B, Tk)
    causal = layout.causal and queries > 1
    return offset_attention(call.q, call.k, call.v, line, padding, causal)[0], None


@torch.library.custom_op("diet_fairseq::offset_attention", mutates_args=())
def offset_attention(
    q: Tensor, k: Tensor, v: Tensor, line: Tensor, padding: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """softmax(q k^T + toeplitz(line), masked) v.

    Args:
        q: (B, H, Tq, d_h), scaled; k, v: (B, H, Tk, d_h)
        line: (H, Tq + Tk - 1) float32, ascending: the score of each offset
        padding: (B, Tk) bool, True at padding
        causal: keys after the query are masked, too, as in `Layout.mask`

    Returns:
        (B, H, Tq, d_h), and the logarithm of what each softmax divides by, (B, H, Tq) float32
    """
    out, norm = results(q)
    launch("forward", q.size(2), (q, k, v), line, padding, (out, norm), causal)
    return out, norm


@offset_attention.register_fake
def results(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """What is returned, without values."""
    return activations(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("diet_fairseq::offset_attention_backward", mutates_args=())
def offset_attention_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, line: Tensor, padding: Tensor | None,
    causal: bool, out: Tensor, norm: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k, v and line, given that of out."""
    mean = (gradient.float() * out.float()).sum(-1)  # (B, H, Tq)
    of_q, of_k, of_v = activations(q, torch.float32).zero_(), activations(k), activations(v)
    of_line = torch.zeros_like(line, memory_format=torch.contiguous_format)
    others = (norm, mean, of_q, of_k, of_v, of_line)
    launch("backward", k.size(2), (gradient, q, k, v), line, padding, others, causal)
    return of_q.to(q.dtype), of_k, of_v, of_line


@offset_attention_backward.register_fake
def _(_: Tensor, q: Tensor, k: Tensor, v: Tensor, line: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return activations(q), activations(k), activations(v), line.new_empty(line.shape)


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.causal = inputs
    ctx.save_for_backward(*tensors, *output)


def gradients(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *inputs, out, norm = ctx.saved_tensors
    return *offset_attention_backward(gradient, *inputs, ctx.causal, out, norm), None, None


offset_attention.register_autograd(gradients, setup_context=save)


def activations(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Without values, of x's shape (B, H, T, d_h), and in memory as fairseq's (T, B, H d_h)."""
    batch, heads, tokens, width = x.shape
    return x.new_empty(tokens, batch, heads, width, dtype=dtype).permute(1, 2, 0, 3)


def launch(
    name: str, tokens: int, inputs: tuple[Tensor, ...], line: Tensor, padding: Tensor | None,
    others: tuple[Tensor, ...], causal: bool,
) -> None:  # fmt: skip
    """Run a kernel, with a program for each sentence, head and tile of so many tokens."""
    inputs = tuple(x if x.stride(3) == 1 else x.contiguous() for x in inputs)
    *_, q, k, _ = inputs
    (batch, heads, queries, width), keys = q.shape, k.size(2)
    # what the compiler keeps in registers, and in 99 KiB of a GPU's memory for it
    tile = 16 if q.dtype == torch.float32 else 64 if width <= 64 else 32
    kernel = getattr(kernels(), name)[batch * heads, -(-tokens // tile)]
    strides = [stride for x in inputs for stride in x.stride()[:3]]
    mask = None if padding is None else padding.view(torch.uint8)
    sizes = {"d": width, "W": max(16, 1 << (width - 1).bit_length()), "S": tile}
    with torch.cuda.device_of(q):
        kernel(
            *(*inputs, line, mask, *others, *strides, line.stride(0), heads, queries, keys),
            *(*sizes.values(), causal, precision()),
            num_warps=8 if tile == 64 else 4,
        )


def kernels() -> ModuleType:
    """`offset_kernels`, which Triton compiles when they first run."""
    try:
        from . import offset_kernels

        if not hasattr(offset_kernels.tl, "gather"):
            raise ImportError("this one is older")
    except ImportError as error:
        raise UserError(
            f"--attention-backend offsets needs Triton 3.3 or newer ({error}): pip install "
            "'triton>=3.3', or take auto"
        ) from error
    return offset_kernels


def precision() -> str:
    """Of products of float32, as PyTorch's flags say."""
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):  # from PyTorch 2.9 on
        return "tf32" if matmul.fp32_precision == "tf32" else "ieee"
    return "tf32" if matmul.allow_tf32 else "ieee"
