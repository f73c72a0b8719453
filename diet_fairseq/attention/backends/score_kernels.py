"""The Triton kernel of `cudnn.py`, which imports it where it runs."""

import triton
import triton.language as tl

from .offset_kernels import LOG2E, load_rows


@triton.jit
def score_gradient(
    g, q, k, v, score, norm, delta, grad_score, batch, heads, tokens, sentences,
    d: tl.constexpr, W: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """A tile of BM x BN scores: the sum of the gradients of q k^T + score over some sentences.

    g, q, k, v (B, H, T, d) lie in memory as (T, B, H, d); score (H, T, T); norm (B, H, T), the
    natural logarithms of the softmax's denominators; delta (B, H, T), the products of g and the
    output; grad_score (parts, H, T, T). BM and BN divide T. The computation of the weights is in
    units of log2 e, for `exp2`.
    """
    columns = tokens // BN
    first, start = tl.program_id(0) // columns * BM, tl.program_id(0) % columns * BN
    h, part = tl.program_id(1), tl.program_id(2)
    step = batch * heads * d
    i, j = first + tl.arange(0, BM), start + tl.arange(0, BN)
    entry = (tl.cast(h, tl.int64) * tokens + i[:, None]) * tokens + j[None, :]
    bias = tl.load(score + entry).to(tl.float32) * LOG2E
    total = tl.zeros((BM, BN), tl.float32)
    for b in range(part * sentences, tl.minimum(batch, (part + 1) * sentences)):
        row = b * heads + h
        query = load_rows(q + row * d, first, step, tokens, BM, d, W, False)
        key = load_rows(k + row * d, start, step, tokens, BN, d, W, False)
        products = tl.dot(query, tl.trans(key), input_precision=P)
        inside = tl.cast(row, tl.int64) * tokens + i
        norms, deltas = tl.load(norm + inside) * LOG2E, tl.load(delta + inside)
        weight = tl.exp2(products * LOG2E + bias - norms[:, None])
        grad = load_rows(g + row * d, first, step, tokens, BM, d, W, False)
        value = load_rows(v + row * d, start, step, tokens, BN, d, W, False)
        minus_delta = tl.zeros((BM, BN), tl.float32) - deltas[:, None]
        total += weight * tl.dot(grad, tl.trans(value), minus_delta, input_precision=P)
    grad_score += tl.cast(part, tl.int64) * heads * tokens * tokens
    tl.store(grad_score + entry, total)
