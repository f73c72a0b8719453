"""The Triton kernels of `offsets.py`, which imports them where they run.

For query i and key j of one sentence and head, with Tq queries that are the last of the Tk keys:

    s_ij = q_i k_j + line[j - i + Tq - 1] + a_i c_j + table[i, j - i + Tq - Tk], -inf where i
           doesn't see j;  p_i = softmax(s_i)
    o_i = sum_j m_ij p_ij v_j, where m_ij is 0 or 1 / (1 - dropout)

Backward, g is the gradient of o, and d_ij = p_ij (m_ij g_i v_j - g_i o_i) is the gradient of s_ij.
Each kernel computes s_ij again; none adds by atomics. Any of ``line``, the factors ``a`` and ``c``,
and ``table`` may be None.

A program has one tile of queries, or of keys, and reads the other tensors a tile at a time. One
loop reads the tiles without checks. Another loop reads the tiles that need checks, at the end of
the keys or at a causal diagonal. EVEN: no tile needs checks, so the second loop is not compiled,
and more programs share a multiprocessor. Scores and line are in units of log2 e, for `exp2`.

Inputs (B, H, T, d) have any strides but the last; outputs lie in memory as (T, B, H, d). d columns
of W, a power of 2, are used. ``pad`` is (B, Tk), -inf at padding and 0 elsewhere; under a causal
mask and with a window padding sees itself (`Layout.mask`).

``a`` (B, H, Tq, r) and ``c`` (B, H, Tk, r) lie in memory in this order; their stride of sentences
is ``a_b`` or ``c_b``, which is 0 if all sentences have the same factors. A tile has R of their
columns, a power of 2, and X more if r is larger.

``table`` (B, H, Tq, high - low + 1) has a score for each offset from low to high; farther keys have
the score of the nearest of these offsets. Only tiles near the diagonal read a score for each pair.
In a tile further away all keys have the score of ``low`` or of ``high``, which ``clipped``
(B, H, 2, Tq) also has, in float32 and in units of log2 e.

``bits`` (B, H, blocks of 16 queries, blocks of 64 keys, 32) has a bit for each weight: whether it
is kept. The forward pass draws the bits, with two of Philox's calls for 32 bits, and the backward
pass reads them. A word holds the bits of one thread of the warp that multiplies the block. Word
4 r + c is of the queries r and r + 8; its bit 16 e + 8 f + n is of query r + 8 f and key
8 n + 2 c + e. The kernels of the backward pass get scaled numbers, so that they choose weights
without a further product: exp2(s_ij - norm_i) is p_ij / (1 - dropout), and delta_i is
(1 - dropout) g_i o_i.

``window`` is the largest distance of a key that a query sees, or None; tiles outside of it are not
read, and all others are checked.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-1.0e30)  # finite, so that no difference of two is NaN


@triton.jit
def head_pointer(x, b, h, x_b, x_h):
    return x + tl.cast(b, tl.int64) * x_b + tl.cast(h, tl.int64) * x_h


@triton.jit
def load_rows(
    x, start, x_t, tokens, S: tl.constexpr, d: tl.constexpr, W: tl.constexpr, EDGE: tl.constexpr
):
    """(S, W): rows of x (T, d) from ``start`` on; at an edge the last row is repeated."""
    row, column = tl.arange(0, S)[:, None], tl.arange(0, W)[None, :]
    if EDGE:
        row = tl.minimum(row, tokens - 1 - start)
    pointers = x + tl.cast(start, tl.int64) * x_t + (row * x_t + column)
    if d >= W:
        return tl.load(pointers)
    return tl.load(pointers, mask=column < d, other=0.0)


@triton.jit
def store_rows(x, start, values, tokens, S: tl.constexpr, d: tl.constexpr, W: tl.constexpr):
    """Store values (S, W) in this program's rows of x, (T, B, H, d) in memory."""
    row, column = start + tl.arange(0, S)[:, None], tl.arange(0, W)[None, :]
    pointers = x + (row.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * d + column
    tl.store(pointers, values.to(x.dtype.element_ty), mask=(row < tokens) & (column < d))


@triton.jit
def load_bias(line, entry, last, R: tl.constexpr, C: tl.constexpr, SIGN: tl.constexpr):
    """(R, C): line[entry + SIGN (column - row)], SIGN 1 or -1.

    Every entry is loaded once and then gathered in shared memory: Triton would copy a tile that is
    loaded as a whole to shared memory element by element, with bank conflicts.
    """
    before: tl.constexpr = R - 1 if SIGN > 0 else C - 1
    number = tl.arange(0, 2 * R if R > C else 2 * C)
    numbers = tl.load(line + tl.maximum(tl.minimum(entry - before + number, last), 0))
    index = SIGN * (tl.arange(0, C)[None, :] - tl.arange(0, R)[:, None]) + before
    return tl.reshape(tl.gather(numbers, tl.reshape(index, (R * C,)), 0), (R, C))


@triton.jit
def load_factors(
    x, start, tokens, S: tl.constexpr, r: tl.constexpr, R: tl.constexpr, X: tl.constexpr,
    EDGE: tl.constexpr,
):  # fmt: skip
    """(S, R) and (S, X): rows of factors (T, r); the second is not used if X is 0."""
    columns = load_rows(x, start, r, tokens, S, r, R, EDGE)
    rest = columns
    if X > 0:
        rest = load_rows(x + R, start, r, tokens, S, r - R, X, EDGE)
    return columns, rest


@triton.jit
def store_factors(
    x, start, columns, rest, tokens, S: tl.constexpr, r: tl.constexpr, R: tl.constexpr,
    X: tl.constexpr,
):  # fmt: skip
    """Store (S, R) and (S, X) in this program's rows of x (B, H, T, r)."""
    row, column = start + tl.arange(0, S)[:, None], tl.arange(0, R)[None, :]
    x += (tl.cast(tl.program_id(1), tl.int64) * tokens + row) * r
    tl.store(x + column, columns.to(x.dtype.element_ty), mask=(row < tokens) & (column < r))
    if X > 0:
        column = R + tl.arange(0, X)[None, :]
        tl.store(x + column, rest.to(x.dtype.element_ty), mask=(row < tokens) & (column < r))


@triton.jit
def add_products(products, x, x_rest, y, y_rest, X: tl.constexpr, P: tl.constexpr):
    """products + x y^T, where x and y have further columns if X is not 0."""
    products = tl.dot(x, tl.trans(y), products, input_precision=P)
    if X > 0:
        products = tl.dot(x_rest, tl.trans(y_rest), products, input_precision=P)
    return products


@triton.jit
def load_table_bias(table, clipped, i, offset, queries, low, high, SIDE: tl.constexpr):
    """Scores of offsets (S, T) of queries i (S, 1), or the reverse, from table (T, high - low + 1).

    SIDE: all offsets are at most low (0), or at least high (2), so that a query has one score.
    """
    if SIDE == 1:
        entry = i * (high - low + 1) + (tl.minimum(tl.maximum(offset, low), high) - low)
        bias = tl.load(table + entry).to(tl.float32) * LOG2E
    elif SIDE == 0:
        bias = tl.load(clipped + i)
    else:
        bias = tl.load(clipped + (i + queries))
    return bias


@triton.jit
def load_position_scores(
    line, table, clipped, i, j, start, queries, keys, low, high, R: tl.constexpr, C: tl.constexpr,
    SIGN: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """(R, C): the scores of ``line`` and ``table``; None if both are None.

    start: the slot of the tile's first key minus the slot of its first query.
    """
    bias = None
    if line is not None:
        bias = load_bias(line, start + queries - 1, queries + keys - 2, R, C, SIGN)
    if table is not None:
        offset = j - i - (keys - queries)
        table_bias = load_table_bias(table, clipped, i, offset, queries, low, high, SIDE)
        bias = table_bias if line is None else bias + table_bias
    return bias


@triton.jit
def scores(
    products, bias, padding, i, j, queries, keys, window, EDGE: tl.constexpr, CAUSAL: tl.constexpr
):
    """s_ij in units of log2 e; i and j are (S, 1) and (1, S), or the reverse; padding is like j."""
    score = products * LOG2E
    if bias is not None:
        score += bias
    if padding is not None:
        if EDGE and (CAUSAL or window is not None):
            padding = tl.where(j - i == keys - queries, 0.0, padding)
        score += padding
    if EDGE:
        is_visible = (i < queries) & (j < keys)
        if CAUSAL:
            is_visible = is_visible & (j - i <= keys - queries)
        if window is not None:
            is_visible = is_visible & (tl.abs(j - i - (keys - queries)) <= window)
        score = tl.where(is_visible, score, -float("inf"))
    return score


@triton.jit
def word_index(first, start, keys, M: tl.constexpr, N: tl.constexpr, TRANSPOSED: tl.constexpr):
    """The place of a tile's words in a head's part of ``bits``, for M queries and N keys.

    Returns:
        (M / 16, 8, C, 4), where C is N / 64, rounded up; TRANSPOSED: (C, 4, M / 16, 8)
    """
    C: tl.constexpr = (N + 63) // 64
    queries = first // 16 + tl.arange(0, M // 16)
    columns, pairs = start // 64 + tl.arange(0, C), tl.arange(0, 4)
    row = (queries * (tl.cdiv(keys, 128) * 2 * 32))[:, None] + 4 * tl.arange(0, 8)[None, :]
    column = (columns * 32)[:, None] + pairs[None, :]
    if TRANSPOSED:
        index = column[:, :, None, None] + row[None, None, :, :]
    else:
        index = row[:, :, None, None] + column[None, None, :, :]
    return index


@triton.jit
def draw_words(seed, row, index, PARTS: tl.constexpr):
    """Words of independent bits that are 0 with the probability PARTS / 256.

    Each bit says whether a random number of 8 binary digits is at least PARTS. The numbers of 32
    bits are 8 random words, a word for each digit, so that a logical operation compares a digit
    of all.
    """
    x0, x1, x2, x3 = tl.philox(seed, index, row, 0, 0, 7)
    y0, y1, y2, y3 = tl.philox(seed, index, row, 1, 0, 7)
    digits = (x0, x1, x2, x3, y0, y1, y2, y3)
    is_kept = ~tl.zeros_like(x0)
    for n in tl.static_range(8):  # from the last digit on, which decides least
        is_kept = is_kept & digits[n] if (PARTS >> n) & 1 else is_kept | digits[n]
    return is_kept


@triton.jit
def expand_words(words, start, M: tl.constexpr, N: tl.constexpr):
    """Whether each weight (M, N) is kept, from words (M / 16, 8, C, 4)."""
    block, two = tl.arange(0, N // 8 if N < 64 else 8), tl.arange(0, 2)
    bit = (8 * two)[:, None, None] + block[None, :, None] + (16 * two)[None, None, :]
    bit = bit[None, :, None, None, :, None, :]  # (1, 2, 1, 1, 8, 1, 2)
    if N < 64:
        words = words >> (start % 64 // 8)
    is_kept = words[:, None, :, :, None, :, None] & (1 << bit).to(tl.uint32)
    return tl.reshape(is_kept != 0, (M, N))


@triton.jit
def expand_transposed_words(words, start, M: tl.constexpr, N: tl.constexpr):
    """Whether each weight (N, M) is kept, from words (C, 4, M / 16, 8).

    First each thread moves its bits of keys to the end of its words, so that the bits of queries
    are constants.
    """
    pair, two = tl.arange(0, N // 16 if N < 64 else 4), tl.arange(0, 2)
    if N < 64:
        words = words >> (start % 64 // 8)
    place = (2 * pair)[:, None] + (16 * two)[None, :]
    place = place[None, :, None, None, :, None, None, None].to(tl.uint32)
    words = words[:, None, None, :, None, :, None, :] >> place  # (C, 4, 1, 4, 2, M / 16, 1, 8)
    bit = two[:, None] + (8 * two)[None, :]
    bit = bit[None, None, :, None, None, None, :, None]
    return tl.reshape((words & (1 << bit).to(tl.uint32)) != 0, (N, M))


@triton.jit
def load_mask(bits, first, start, keys, M: tl.constexpr, N: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Whether each weight (M, N) of a tile is kept; TRANSPOSED: (N, M)."""
    words = tl.load(bits + word_index(first, start, keys, M, N, TRANSPOSED))
    words = words.to(tl.uint32, bitcast=True)
    if TRANSPOSED:
        is_kept = expand_transposed_words(words, start, M, N)
    else:
        is_kept = expand_words(words, start, M, N)
    return is_kept


@triton.jit
def score_gradients(
    weight, grad, value, delta, bits, first, start, keys, M: tl.constexpr, N: tl.constexpr,
    P: tl.constexpr,
):  # fmt: skip
    """d_ij; a product that starts from -delta saves an instruction a score on 8.0."""
    if bits is None:
        products = tl.zeros_like(weight) - delta
        gradients = weight * tl.dot(grad, tl.trans(value), products, input_precision=P)
    else:
        is_kept = load_mask(bits, first, start, keys, M, N, False)
        products = tl.dot(grad, tl.trans(value), input_precision=P)
        gradients = tl.where(is_kept, weight, 0.0) * products - weight * delta
    return gradients


@triton.jit
def split_keys(
    first, table, queries, keys, window, low, high, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """The runs of keys of a tile of queries, each from one of five numbers to the next.

    Run 0 is left of the diagonal, run 1 at the diagonal, and run 2 right of it or, without
    ``table``, all of these. Run 3 needs checks. Run 1 does, too, unless all tiles are full.
    """
    begin, edge, end = 0, keys // BN * BN, keys
    position = first + keys - queries  # of the first query, among the keys
    if CAUSAL:
        edge = tl.minimum(edge, tl.maximum(position, 0) // BN * BN)
        end = tl.minimum(keys, position + BM)
    if window is not None:
        begin = tl.maximum(position - window, 0) // BN * BN
        edge = begin
        end = tl.minimum(end, position + BM + window)
    near, far = begin, begin
    if table is not None:
        far = tl.cdiv(end, BN) * BN
        if window is None:
            near = tl.minimum(tl.maximum(position + low + 1, 0) // BN * BN, edge)
            if not CAUSAL:
                last = tl.cdiv(tl.maximum(position + BM - 1 + high, 0), BN) * BN
                far = tl.minimum(tl.maximum(last, near), far)
        edge = tl.maximum(edge, far)
    return begin, near, far, edge, end


@triton.jit
def accumulate_output(
    highest, total, out, query, factor, rest, k, v, k_t, v_t, line, table, clipped, c, pad,
    seed, bits, i, begin, end, first, queries, keys, window, low, high, dropout, BM: tl.constexpr,
    BN: tl.constexpr, d: tl.constexpr, W: tl.constexpr, r: tl.constexpr, R: tl.constexpr,
    X: tl.constexpr, CAUSAL: tl.constexpr, P: tl.constexpr, EDGE: tl.constexpr, SIDE: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    if begin < end:  # ptxas would serialize the products of a loop that may be skipped
        for start in range(begin, end, BN):
            j = (start + tl.arange(0, BN))[None, :]
            key = load_rows(k, start, k_t, keys, BN, d, W, EDGE)
            products = tl.dot(query, tl.trans(key), input_precision=P)
            if c is not None:
                key_factor, key_rest = load_factors(c, start, keys, BN, r, R, X, EDGE)
                products = add_products(products, factor, rest, key_factor, key_rest, X, P)
            bias = load_position_scores(
                line, table, clipped, i, j, start - first, queries, keys, low, high, BM, BN, 1, SIDE
            )
            padding = pad
            if pad is not None:
                padding = tl.load(pad + (tl.minimum(j, keys - 1) if EDGE else j))
            score = scores(products, bias, padding, i, j, queries, keys, window, EDGE, CAUSAL)
            new_highest = tl.maximum(highest, tl.max(score, 1))
            weight, decay = tl.exp2(score - new_highest[:, None]), tl.exp2(highest - new_highest)
            total = total * decay + tl.sum(weight, 1)
            output_weight = weight
            if seed is not None:
                index = word_index(first, start, keys, BM, BN, False)
                words = draw_words(seed, tl.program_id(1), index, PARTS)
                if bits is not None:
                    tl.store(bits + index, words.to(tl.int32, bitcast=True))
                is_kept = expand_words(words, start, BM, BN)
                # with a constant 0, LLVM would choose among packed numbers in half precision
                output_weight = tl.where(is_kept, weight, dropout * 0.0)
            value = load_rows(v, start, v_t, keys, BN, d, W, EDGE)
            out = tl.dot(
                output_weight.to(value.dtype), value, out * decay[:, None], input_precision=P
            )
            highest = new_highest
    return highest, total, out


@triton.jit
def offset_forward(
    q, k, v, line, table, clipped, a, c, pad, seed, bits, o, norm,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t,
    a_b, c_b, length, heads, queries, keys, window, low, high, dropout,
    d: tl.constexpr, W: tl.constexpr, r: tl.constexpr, R: tl.constexpr, X: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, P: tl.constexpr, EVEN: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """BM rows of o, and of norm (B, H, Tq): log2 of the softmax's denominator times 1 - dropout.

    PARTS / 256 is ``dropout``; bits are stored unless ``bits`` is None.
    """
    tile, row = tl.program_id(0), tl.program_id(1)
    if CAUSAL:
        tile = tl.num_programs(0) - 1 - tile  # the longest first
    b, h, first = row // heads, row % heads, tile * BM
    i = first + tl.arange(0, BM)
    inside = tl.minimum(i, queries - 1)[:, None]
    query = load_rows(head_pointer(q, b, h, q_b, q_h), first, q_t, queries, BM, d, W, True)
    k, v = head_pointer(k, b, h, k_b, k_h), head_pointer(v, b, h, v_b, v_h)
    factor, rest = query, query  # not used without factors
    if a is not None:
        c = head_pointer(c, b, h, c_b, keys * r)
        factor, rest = load_factors(
            head_pointer(a, b, h, a_b, queries * r), first, queries, BM, r, R, X, True
        )
    if line is not None:
        line += h * (queries + keys - 1)
    if table is not None:
        table += tl.cast(row, tl.int64) * queries * (high - low + 1)
        clipped += tl.cast(row, tl.int64) * 2 * queries
    if pad is not None:
        pad += tl.cast(b, tl.int64) * keys
    if bits is not None:
        bits += tl.cast(row, tl.int64) * tl.cdiv(queries, 128) * tl.cdiv(keys, 128) * 512
    ends = split_keys(first, table, queries, keys, window, low, high, BM, BN, CAUSAL)
    if seed is not None:
        seed = tl.load(seed)
    highest = tl.full((BM,), LOWEST, tl.float32)
    total, out = tl.zeros((BM,), tl.float32), tl.zeros((BM, W), tl.float32)
    first_run: tl.constexpr = (0 if table is not None else 2) + (1 if window is not None else 0)
    is_near: tl.constexpr = table is not None and (CAUSAL or window is not None)
    for run in tl.static_range(first_run, 2 if is_near else 3 if EVEN else 4):
        highest, total, out = accumulate_output(
            highest, total, out, query, factor, rest, k, v, k_t, v_t, line, table, clipped, c, pad,
            seed, bits, inside, ends[run], ends[run + 1], first, queries, keys, window, low, high,
            dropout, BM, BN, d, W, r, R, X, CAUSAL, P, run == 3 or (run == 1 and not EVEN),
            1 if run == 3 else run, PARTS,
        )  # fmt: skip
    if seed is not None:
        total *= 1.0 - dropout
    store_rows(o, first, out / total[:, None], queries, BM, d, W)
    norm += tl.cast(row, tl.int64) * queries + i
    tl.store(norm, highest + tl.log2(total), mask=i < queries)


@triton.jit
def offset_delta(g, o, delta, queries, dropout, d: tl.constexpr, W: tl.constexpr, BM: tl.constexpr):
    """BM numbers (1 - dropout) g_i o_i of delta (B, H, Tq)."""
    first, row = tl.program_id(0) * BM, tl.program_id(1)
    step = tl.num_programs(1) * d
    grad = load_rows(g + row * d, first, step, queries, BM, d, W, True).to(tl.float32)
    out = load_rows(o + row * d, first, step, queries, BM, d, W, True).to(tl.float32)
    i = first + tl.arange(0, BM)
    delta += tl.cast(row, tl.int64) * queries
    tl.store(delta + i, tl.sum(grad * out, 1) * (1.0 - dropout), mask=i < queries)


@triton.jit
def accumulate_key_gradients(
    dk, dv, dc, dc_rest, key, value, factor, rest, q, g, step, line, table, clipped, a, padding,
    bits, norm, delta, j, begin, end, first, queries, keys, window, low, high,
    BM: tl.constexpr, BN: tl.constexpr, d: tl.constexpr, W: tl.constexpr, r: tl.constexpr,
    R: tl.constexpr, X: tl.constexpr, CAUSAL: tl.constexpr, P: tl.constexpr, EDGE: tl.constexpr,
    SIDE: tl.constexpr,
):  # fmt: skip
    if begin < end:  # ptxas would serialize the products of a loop that may be skipped
        for start in range(begin, end, BM):
            i = start + tl.arange(0, BM)
            inside = tl.minimum(i, queries - 1) if EDGE else i
            query = load_rows(q, start, step, queries, BM, d, W, EDGE)
            products = tl.dot(key, tl.trans(query), input_precision=P)  # (BN, BM), as all below
            if a is not None:
                query_factor, query_rest = load_factors(a, start, queries, BM, r, R, X, EDGE)
                products = add_products(products, factor, rest, query_factor, query_rest, X, P)
            bias = load_position_scores(
                line, table, clipped, inside[None, :], j, first - start, queries, keys, low, high,
                BN, BM, -1, SIDE,
            )  # fmt: skip
            score = scores(
                products, bias, padding, i[None, :], j, queries, keys, window, EDGE, CAUSAL
            )
            weight = tl.exp2(score - tl.load(norm + inside)[None, :])
            grad = load_rows(g, start, step, queries, BM, d, W, EDGE)
            # before the next product, so that fewer numbers are in registers at a time
            output_weight = weight
            if bits is not None:
                is_kept = load_mask(bits, start, first, keys, BM, BN, True)
                output_weight = tl.where(is_kept, weight, 0.0)
            dv = tl.dot(output_weight.to(grad.dtype), grad, dv, input_precision=P)
            products = tl.dot(value, tl.trans(grad), input_precision=P)
            score_grad = output_weight * products - weight * tl.load(delta + inside)[None, :]
            score_grad = score_grad.to(query.dtype)
            dk = tl.dot(score_grad, query, dk, input_precision=P)
            if a is not None:
                dc = tl.dot(score_grad, query_factor, dc, input_precision=P)
                if X > 0:
                    dc_rest = tl.dot(score_grad, query_rest, dc_rest, input_precision=P)
    return dk, dv, dc, dc_rest


@triton.jit
def offset_backward_keys(
    g, q, k, v, line, table, clipped, a, c, pad, bits, norm, delta, grad_k, grad_v, grad_c,
    a_b, c_b, length, heads, queries, keys, window, low, high,
    d: tl.constexpr, W: tl.constexpr, r: tl.constexpr, R: tl.constexpr, X: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, P: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """BN rows of the gradients of k, v and c; keys past the end are copies of the last key."""
    row, first = tl.program_id(1), tl.program_id(0) * BN
    b, h = row // heads, row % heads
    j = tl.minimum(first + tl.arange(0, BN), keys - 1)[:, None]
    step = tl.num_programs(1) * d
    key = load_rows(k + row * d, first, step, keys, BN, d, W, True)
    value = load_rows(v + row * d, first, step, keys, BN, d, W, True)
    q, g = q + row * d, g + row * d
    factor, rest = key, key  # not used without factors
    if a is not None:
        a = head_pointer(a, b, h, a_b, queries * r)
        factor, rest = load_factors(
            head_pointer(c, b, h, c_b, keys * r), first, keys, BN, r, R, X, True
        )
    if line is not None:
        line += h * (queries + keys - 1)
    if table is not None:
        table += tl.cast(row, tl.int64) * queries * (high - low + 1)
        clipped += tl.cast(row, tl.int64) * 2 * queries
    norm += tl.cast(row, tl.int64) * queries
    delta += tl.cast(row, tl.int64) * queries
    padding = pad
    if pad is not None:
        padding = tl.load(pad + tl.cast(b, tl.int64) * keys + j)
    if bits is not None:
        bits += tl.cast(row, tl.int64) * tl.cdiv(queries, 128) * tl.cdiv(keys, 128) * 512
    position = first - (keys - queries)  # of the first key, among the queries
    begin, near, edge = 0, 0, queries // BM * BM
    if CAUSAL:
        begin = tl.maximum(position, 0) // BM * BM
        near = tl.minimum(tl.cdiv(tl.maximum(position + BN, 0), BM) * BM, tl.cdiv(queries, BM) * BM)
        edge = tl.maximum(edge, near)
    end = queries
    if window is not None:
        begin = tl.maximum(position - (0 if CAUSAL else window), 0) // BM * BM
        near, edge = begin, begin
        end = tl.minimum(queries, position + BN + window)
    # runs as of `split_keys`: offsets fall from high to low
    far, near = near, begin
    if table is not None:
        last = tl.cdiv(end, BM) * BM
        if window is None:
            if not CAUSAL:
                near = tl.minimum(tl.maximum(position - high + 1, 0) // BM * BM, edge)
            far = tl.maximum(far, near)
            far = tl.maximum(far, tl.cdiv(tl.maximum(position + BN - 1 - low, 0), BM) * BM)
            far = tl.minimum(far, last)
        else:
            far = last
        edge = tl.maximum(edge, far)
    ends = (begin, near, far, edge, end)
    dk, dv = tl.zeros((BN, W), tl.float32), tl.zeros((BN, W), tl.float32)
    dc, dc_rest = dk, dk  # not used without factors
    if a is not None:
        dc = tl.zeros((BN, R), tl.float32)
        if X > 0:
            dc_rest = tl.zeros((BN, X), tl.float32)
    is_near: tl.constexpr = table is not None and window is not None
    first_run: tl.constexpr = (
        (1 if CAUSAL or window is not None else 0)
        if table is not None
        else (3 if window is not None else 1 if CAUSAL else 2)
    )
    for run in tl.static_range(first_run, 2 if is_near else 3 if EVEN else 4):
        dk, dv, dc, dc_rest = accumulate_key_gradients(
            dk, dv, dc, dc_rest, key, value, factor, rest, q, g, step, line, table, clipped, a,
            padding, bits, norm, delta, j, ends[run], ends[run + 1], first, queries, keys, window,
            low, high, BM, BN, d, W, r, R, X, CAUSAL, P,
            run == 3 or (run == 1 and not EVEN), 1 if run == 3 else 2 - run,
        )  # fmt: skip
    if a is not None:
        store_factors(grad_c, first, dc, dc_rest, keys, BN, r, R, X)
    store_rows(grad_k, first, dk, keys, BN, d, W)
    store_rows(grad_v, first, dv, keys, BN, d, W)


@triton.jit
def diagonal_constants(BM: tl.constexpr, BN: tl.constexpr, R: tl.constexpr, dtype: tl.constexpr):
    """Constants of 0 and 1: the diagonal of each element of a block, and of each block of a tile.

    Returns:
        (64, 16) for the elements of a block of 8 x 8, and (R, blocks) for the blocks of a tile
    """
    element, block = tl.arange(0, 64)[:, None], tl.arange(0, BM * BN // 64)[None, :]
    inner = element % 8 - element // 8 + 7 == tl.arange(0, 16)[None, :]
    outer = block % (BN // 8) - block // (BN // 8) + BM // 8 - 1 == tl.arange(0, R)[:, None]
    return inner.to(dtype), outer.to(dtype)


@triton.jit
def store_diagonals(
    sums, score_grad, inner, outer, BM: tl.constexpr, BN: tl.constexpr, R: tl.constexpr,
    P: tl.constexpr,
):  # fmt: skip
    """Sum d_ij (BM, BN) over the diagonals of its blocks of 8 x 8, by two products with constants.

    sums ((BM + BN) / 8, 16): an entry for each diagonal of blocks and each diagonal of a block.
    """
    blocks = tl.permute(tl.reshape(score_grad, (BM // 8, 8, BN // 8, 8)), (0, 2, 1, 3))
    by_block = tl.dot(tl.reshape(blocks, (BM * BN // 64, 64)), inner, input_precision=P)
    total = tl.dot(outer, by_block.to(outer.dtype), input_precision=P)  # (R, 16)
    row = tl.arange(0, R)[:, None]
    tl.store(sums + row * 16 + tl.arange(0, 16)[None, :], total, mask=row < BM // 8 + BN // 8)


@triton.jit
def accumulate_query_gradients(
    dq, da, da_rest, left, right, query, factor, rest, grad, k, v, step, line, table, clipped, c,
    pad, bits, norm, delta, sums, grad_table, inner, outer, i, begin, end, first, queries, keys,
    window, low, high, BM: tl.constexpr, BN: tl.constexpr, d: tl.constexpr,
    W: tl.constexpr, r: tl.constexpr, R: tl.constexpr, X: tl.constexpr, CAUSAL: tl.constexpr,
    P: tl.constexpr, EDGE: tl.constexpr, SIDE: tl.constexpr, DIAGONALS: tl.constexpr,
):  # fmt: skip
    if begin < end:  # ptxas would serialize the products of a loop that may be skipped
        for start in range(begin, end, BN):
            j = (start + tl.arange(0, BN))[None, :]
            key = load_rows(k, start, step, keys, BN, d, W, EDGE)
            products = tl.dot(query, tl.trans(key), input_precision=P)
            if c is not None:
                key_factor, key_rest = load_factors(c, start, keys, BN, r, R, X, EDGE)
                products = add_products(products, factor, rest, key_factor, key_rest, X, P)
            bias = load_position_scores(
                line, table, clipped, i, j, start - first, queries, keys, low, high, BM, BN, 1, SIDE
            )
            padding = pad
            if pad is not None:
                padding = tl.load(pad + (tl.minimum(j, keys - 1) if EDGE else j))
            score = scores(products, bias, padding, i, j, queries, keys, window, EDGE, CAUSAL)
            weight = tl.exp2(score - norm[:, None])
            value = load_rows(v, start, step, keys, BN, d, W, EDGE)
            score_grad = score_gradients(
                weight, grad, value, delta[:, None], bits, first, start, keys, BM, BN, P
            )
            if grad_table is not None:
                offset = j - i - (keys - queries)
                # rows past the end are copies of the last row, but with other weights dropped
                rows = None if bits is None else queries - first
                left, right = add_table_gradients(
                    left, right, score_grad, grad_table, i, offset, rows, low, high, BM, SIDE
                )
            score_grad = score_grad.to(key.dtype)
            dq = tl.dot(score_grad, key, dq, input_precision=P)
            if c is not None:
                da = tl.dot(score_grad, key_factor, da, input_precision=P)
                if X > 0:
                    da_rest = tl.dot(score_grad, key_rest, da_rest, input_precision=P)
            if sums is not None:
                tile_sums = sums + start // BN * ((BM // 8 + BN // 8) * 16)
                store_diagonals(tile_sums, score_grad, inner, outer, BM, BN, DIAGONALS, P)
    return dq, da, da_rest, left, right


@triton.jit
def add_table_gradients(
    left, right, score_grad, grad_table, i, offset, rows, low, high, BM: tl.constexpr,
    SIDE: tl.constexpr,
):  # fmt: skip
    """Store d_ij of offsets between low and high, and add up d_ij of the others, (BM,) each.

    Only the first ``rows`` rows are stored, or all if None.
    """
    if SIDE == 0:
        left += tl.sum(score_grad, 1)
    elif SIDE == 2:
        right += tl.sum(score_grad, 1)
    else:
        left += tl.sum(tl.where(offset <= low, score_grad, 0.0), 1)
        right += tl.sum(tl.where(offset >= high, score_grad, 0.0), 1)
        entry = i * (high - low + 1) + (offset - low)
        is_between = (offset > low) & (offset < high)
        if rows is not None:
            is_between = is_between & (tl.arange(0, BM)[:, None] < rows)
        tl.store(grad_table + entry, score_grad.to(grad_table.dtype.element_ty), mask=is_between)
    return left, right


@triton.jit
def offset_backward_queries(
    g, q, k, v, line, table, clipped, a, c, pad, bits, norm, delta,
    grad_q, grad_a, grad_table, grad_line,
    a_b, c_b, length, heads, queries, keys, window, low, high,
    d: tl.constexpr, W: tl.constexpr, r: tl.constexpr, R: tl.constexpr, X: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, P: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """BM rows of the gradients of q, a and table, and the sums of their d_ij over diagonals.

    grad_line (B, H, tiles of queries, tiles of keys, (BM + BN) / 8, 16): see `store_diagonals`;
    None if nobody needs the sums. ROWS is the smallest number of rows of a product on this GPU.
    grad_table is 0 where no tile has the offset.
    """
    tile, row = tl.program_id(0), tl.program_id(1)
    if CAUSAL:
        tile = tl.num_programs(0) - 1 - tile  # the longest first
    b, h, first = row // heads, row % heads, tile * BM
    i = first + tl.arange(0, BM)
    inside = tl.minimum(i, queries - 1)
    step = tl.num_programs(1) * d
    query = load_rows(q + row * d, first, step, queries, BM, d, W, True)
    grad = load_rows(g + row * d, first, step, queries, BM, d, W, True)
    k, v = k + row * d, v + row * d
    factor, rest = query, query  # not used without factors
    if a is not None:
        c = head_pointer(c, b, h, c_b, keys * r)
        factor, rest = load_factors(
            head_pointer(a, b, h, a_b, queries * r), first, queries, BM, r, R, X, True
        )
    if line is not None:
        line += h * (queries + keys - 1)
    if table is not None:
        table += tl.cast(row, tl.int64) * queries * (high - low + 1)
        clipped += tl.cast(row, tl.int64) * 2 * queries
        grad_table += tl.cast(row, tl.int64) * queries * (high - low + 1)
    norms = tl.load(norm + tl.cast(row, tl.int64) * queries + inside)
    if grad_line is not None and not EVEN:  # rows past the end add nothing to the line
        norms = tl.where(i < queries, norms, float("inf"))
    deltas = tl.load(delta + tl.cast(row, tl.int64) * queries + inside)
    if pad is not None:
        pad += tl.cast(b, tl.int64) * keys
    if bits is not None:
        bits += tl.cast(row, tl.int64) * tl.cdiv(queries, 128) * tl.cdiv(keys, 128) * 512
    ends = split_keys(first, table, queries, keys, window, low, high, BM, BN, CAUSAL)
    dq = tl.zeros((BM, W), tl.float32)
    da, da_rest = dq, dq  # not used without factors
    if a is not None:
        da = tl.zeros((BM, R), tl.float32)
        if X > 0:
            da_rest = tl.zeros((BM, X), tl.float32)
    left, right = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    diagonals: tl.constexpr = ROWS if BM + BN <= 8 * ROWS else 2 * ROWS
    tl.static_assert(8 * diagonals >= BM + BN)
    inner, outer = diagonal_constants(BM, BN, diagonals, query.dtype)
    if grad_line is not None:
        tiles = (tl.cast(row, tl.int64) * tl.num_programs(0) + tile) * tl.cdiv(keys, BN)
        grad_line += tiles * ((BM // 8 + BN // 8) * 16)
    first_run: tl.constexpr = (0 if table is not None else 2) + (1 if window is not None else 0)
    is_near: tl.constexpr = table is not None and (CAUSAL or window is not None)
    for run in tl.static_range(first_run, 2 if is_near else 3 if EVEN else 4):
        dq, da, da_rest, left, right = accumulate_query_gradients(
            dq, da, da_rest, left, right, query, factor, rest, grad, k, v, step, line, table,
            clipped, c, pad, bits, norms, deltas, grad_line, grad_table, inner, outer,
            inside[:, None], ends[run], ends[run + 1], first, queries, keys, window, low, high,
            BM, BN, d, W, r, R, X, CAUSAL, P, run == 3 or (run == 1 and not EVEN),
            1 if run == 3 else run, diagonals,
        )  # fmt: skip
    store_rows(grad_q, first, dq, queries, BM, d, W)
    if a is not None:
        store_factors(grad_a, first, da, da_rest, queries, BM, r, R, X)
    if grad_table is not None:
        is_row, entry = i < queries, i * (high - low + 1)
        tl.store(grad_table + entry, left.to(grad_table.dtype.element_ty), mask=is_row)
        right = right.to(grad_table.dtype.element_ty)
        tl.store(grad_table + (entry + (high - low)), right, mask=is_row)


@triton.jit
def offset_line(
    sums, grad_line, batch, heads, queries, keys, window, lowest,
    BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Eight entries of the line's gradient (H, Tq + Tk - 1), added in a fixed order.

    sums (B, H, tiles of queries, tiles of keys, (BM + BN) / 8, 16): the sums of
    `offset_backward_queries`; tiles without visible keys are uninitialized. Entry t of diagonal
    r of a tile's blocks has the offset BN column - BM row + 8 r + t + 1 - BM.
    """
    block, h = tl.program_id(0) + lowest, tl.program_id(1)
    rows, columns = tl.cdiv(queries, BM), tl.cdiv(keys, BN)
    M: tl.constexpr = BM // 8
    N: tl.constexpr = BN // 8
    entry = tl.arange(0, 8)[None, :]
    total = tl.zeros((64, 8), tl.float32)
    for start in range(0, batch * rows, 64):
        x = start + tl.arange(0, 64)[:, None]
        b, row = x // rows, x % rows
        for half in tl.static_range(2):  # the second half of a diagonal overlaps the next one
            diagonal = block - half + row * M
            for tile in tl.static_range((M + N - 1) // N + 1):
                column = diagonal // N - tile
                r = diagonal - column * N
                is_used = (x < batch * rows) & (diagonal >= 0) & (r < M + N)
                is_used = is_used & (column >= 0) & (column < columns)
                if CAUSAL:
                    is_used = is_used & (column * BN < (row + 1) * BM + keys - queries)
                if window is not None:
                    position = row * BM + keys - queries  # of the tile's first query
                    is_used = is_used & ((column + 1) * BN > position - window)
                    is_used = is_used & (column * BN < position + BM + window)
                place = (tl.cast(b * heads + h, tl.int64) * rows + row) * columns + column
                pointers = sums + (place * (M + N) + r) * 16 + (8 * half + entry)
                total += tl.load(pointers, mask=is_used, other=0.0)
    index = block * 8 + tl.arange(0, 8) + queries - BM
    entries = queries + keys - 1
    is_entry = (index >= 0) & (index < entries)
    tl.store(grad_line + h * entries + index, tl.sum(total, 0), mask=is_entry)
