"""The Triton kernels of `offsets.py`, which imports them where they run.

For query i and key j of one sentence and head, where the queries are the last of the keys:

    s_ij = q_i k_j + line[j - i + Tq - 1], -inf where i doesn't see j
    o_i = sum_j w_ij v_j, with w_i = softmax(s_i)

and backward, with g the gradient of o, that of s_ij is w_ij (g_i v_j - g_i o_i). Its sums over the
diagonals are the gradient of the line.

A program has S queries or S keys of one sentence and head, and meets those of the other kind S at
a time. S and the width W, of which d columns are used, are powers of 2; P is the precision of
products of float32. Inputs (B, H, T, d) have any strides but the last; outputs lie in memory as
(T, B, H, d), as fairseq's activations do. Of a sentence without a token no key is hidden
(`Layout.hidden`).
"""

import triton
import triton.language as tl


@triton.jit
def rows(x, x_b, x_h, x_t, t, tokens, heads, d: tl.constexpr, W: tl.constexpr):
    """(S, W): x[t] of this program's sentence and head; zero beyond the last token."""
    program = tl.program_id(0).to(tl.int64)
    b, h = program // heads, program % heads
    column = tl.arange(0, W)[None, :]
    place = x + b * x_b + h * x_h + t[:, None].to(tl.int64) * x_t + column
    return tl.load(place, mask=(t[:, None] < tokens) & (column < d), other=0.0)


@triton.jit
def places(x, t, tokens, d: tl.constexpr, W: tl.constexpr):
    """(S, W): pointers to this program's x[t] of (T, B, H, d), and whether there is one."""
    column = tl.arange(0, W)[None, :]
    row = t[:, None].to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    return x + row * d + column, (t[:, None] < tokens) & (column < d)


@triton.jit
def scores(
    q, k, line, line_h, padding, i, j, queries, keys, heads, CAUSAL: tl.constexpr, P: tl.constexpr
):
    """(S, S): s_ij, and whether i sees j."""
    place = j[None, :] - i[:, None] + queries - 1
    exists = (i[:, None] < queries) & (j[None, :] < keys)
    line += tl.program_id(0) % heads * line_h
    score = tl.dot(q, tl.trans(k), input_precision=P)
    score += tl.load(line + place, mask=exists, other=0.0)
    seen = exists
    if padding is not None:
        padding += (tl.program_id(0) // heads).to(tl.int64) * keys
        seen &= (tl.load(padding + j, mask=j < keys, other=1) == 0)[None, :]
    if CAUSAL:  # of padding a query sees itself, as in `Layout.mask`
        offset = place - (keys - 1)
        seen = (seen & (offset < 0)) | (exists & (offset == 0))
    return tl.where(seen, score, -float("inf")), seen


@triton.jit
def forward(
    q, k, v, line, padding, o, norm,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, line_h, heads, queries, keys,
    d: tl.constexpr, W: tl.constexpr, S: tl.constexpr, CAUSAL: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """S rows of o, and of norm (B, H, Tq): the logarithm of what their softmax divides by."""
    i = tl.program_id(1) * S + tl.arange(0, S)
    query = rows(q, q_b, q_h, q_t, i, queries, heads, d, W)
    most = tl.full((S,), -float("inf"), tl.float32)
    total = tl.zeros((S,), tl.float32)
    out = tl.zeros((S, W), tl.float32)
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, (tl.program_id(1) + 1) * S + keys - queries)
    for start in range(0, end, S):
        j = start + tl.arange(0, S)
        key = rows(k, k_b, k_h, k_t, j, keys, heads, d, W)
        value = rows(v, v_b, v_h, v_t, j, keys, heads, d, W)
        score, _ = scores(query, key, line, line_h, padding, i, j, queries, keys, heads, CAUSAL, P)
        before, most = most, tl.maximum(most, tl.max(score, 1))
        level = tl.where(most == -float("inf"), 0.0, most)  # where nothing was seen yet
        weight, shrink = tl.exp(score - level[:, None]), tl.exp(before - level)
        total = total * shrink + tl.sum(weight, 1)
        out = out * shrink[:, None] + tl.dot(weight.to(value.dtype), value, input_precision=P)
    place, exists = places(o, i, queries, d, W)
    tl.store(place, (out / total[:, None]).to(o.dtype.element_ty), mask=exists)
    norm += tl.program_id(0).to(tl.int64) * queries
    tl.store(norm + i, most + tl.log(total), mask=i < queries)


@triton.jit
def backward(
    g, q, k, v, line, padding, norm, mean, of_q, of_k, of_v, of_line,
    g_b, g_h, g_t, q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, line_h, heads, queries, keys,
    d: tl.constexpr, W: tl.constexpr, S: tl.constexpr, CAUSAL: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """S rows of of_k and of_v; adds to of_q and of_line (H, Tq + Tk - 1), float32 and zero before.

    ``mean``: g_i o_i, (B, H, Tq)
    """
    j = tl.program_id(1) * S + tl.arange(0, S)
    key = rows(k, k_b, k_h, k_t, j, keys, heads, d, W)
    value = rows(v, v_b, v_h, v_t, j, keys, heads, d, W)
    to_key = tl.zeros((S, W), tl.float32)
    to_value = tl.zeros((S, W), tl.float32)
    norm += tl.program_id(0).to(tl.int64) * queries
    mean += tl.program_id(0).to(tl.int64) * queries
    of_line += tl.program_id(0) % heads * (queries + keys - 1)
    first = 0
    if CAUSAL:
        first = tl.maximum(0, tl.program_id(1) * S - (keys - queries)) // S * S
    for start in range(first, queries, S):
        i = start + tl.arange(0, S)
        query = rows(q, q_b, q_h, q_t, i, queries, heads, d, W)
        grad = rows(g, g_b, g_h, g_t, i, queries, heads, d, W)
        score, seen = scores(
            query, key, line, line_h, padding, i, j, queries, keys, heads, CAUSAL, P
        )
        weight = tl.exp(score - tl.load(norm + i, mask=i < queries, other=float("inf"))[:, None])
        to_value += tl.dot(tl.trans(weight).to(grad.dtype), grad, input_precision=P)
        change = tl.dot(grad, tl.trans(value), input_precision=P)
        change -= tl.load(mean + i, mask=i < queries, other=0.0)[:, None]
        change = tl.where(seen, weight * change, 0.0)  # (S, S), of s_ij
        to_key += tl.dot(tl.trans(change).to(query.dtype), query, input_precision=P)
        to_query = tl.dot(change.to(key.dtype), key, input_precision=P)
        place, exists = places(of_q, i, queries, d, W)
        tl.atomic_add(place, to_query, mask=exists, sem="relaxed")
        # Row r is moved by S - 1 - r columns, so that a column is a diagonal: one sum and one
        # atomic addition for each of them, not for each s_ij.
        diagonal = tl.arange(0, 2 * S)
        column = diagonal[None, :] + tl.arange(0, S)[:, None] - (S - 1)  # (S, 2 S)
        exists = (column >= 0) & (column < S)
        moved = tl.gather(change, tl.where(exists, column, 0), 1)
        offset = tl.program_id(1) * S - start + queries - S + diagonal  # (2 S,), in the line
        exists_there = (offset >= 0) & (offset < queries + keys - 1)
        sums = tl.sum(tl.where(exists, moved, 0.0), 0)
        tl.atomic_add(of_line + offset, sums, mask=exists_there, sem="relaxed")
    place, exists = places(of_k, j, keys, d, W)
    tl.store(place, to_key.to(of_k.dtype.element_ty), mask=exists)
    place, exists = places(of_v, j, keys, d, W)
    tl.store(place, to_value.to(of_v.dtype.element_ty), mask=exists)
