"""Attention with scores of offsets and of low rank, in Triton kernels without a Tq x Tk matrix.

The kernels add nothing by atomics, so that two runs give the same bits. They equal the reference
on an H200 and in Triton's interpreter (``TRITON_INTERPRET=1``) on a CPU, and compile for compute
capabilities 8.0 to 10.0 (docs/performance.md).
"""

import math
from functools import cache
from inspect import signature
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...errors import UserError
from ...positions.scores import Dense, Factors, Offsets, QueryOffsets, Score
from .call import AttentionCall, kernels_fit
from .fused import sdpa
from .reference import reference

# Notation: B sentences, H heads, Tq queries, Tk keys, d_h width of a head, r rank.

#: all tiles are full at lengths that are multiples of this number
EVEN = 128


class Tile(NamedTuple):
    """A kernel's work: queries and keys in a tile, warps, and stages of its pipeline.

    GPUs of the compute capabilities ``spills`` have too few registers for this tile. ``only_even``:
    all GPUs have too few registers unless all tiles are full and nothing is masked.
    """

    queries: int
    keys: int
    warps: int
    stages: int
    spills: tuple[int, ...] = ()
    only_even: bool = False


#: kernel -> the tiles in half precision for heads of at most 64 numbers (narrow), for wider heads,
#: with dropout, with factors, and with a table of each query's scores. Calls time all tiles that
#: spill no register (tests/attention/test_compiled_kernels.py): large tiles need fewer
#: instructions, and tiles of 4 warps let two or more programs share a multiprocessor. On an H200
#: and an H100 the first tile of "narrow" and "wide" was the fastest, or 1% slower than the fastest
#: (results/performance/attention-h200.csv, attention-h100-offsets.csv). Tiles with dropout,
#: factors and tables were not timed.
TILES = {
    "forward": {
        "narrow": (
            Tile(128, 64, 8, 3),
            Tile(128, 64, 4, 3, spills=(10,)),
            Tile(64, 64, 4, 2),
        ),
        "wide": (Tile(128, 64, 8, 2),),
        "dropout": (Tile(128, 64, 8, 3), Tile(64, 64, 4, 2)),
        "factors": (Tile(128, 64, 8, 2), Tile(64, 64, 4, 2)),
        "table": (Tile(128, 64, 8, 3), Tile(64, 64, 4, 2)),
    },
    "backward_keys": {
        "narrow": (Tile(64, 64, 4, 3, spills=(8,)), Tile(32, 128, 8, 2), Tile(32, 64, 4, 2)),
        "wide": (
            Tile(64, 64, 8, 2, spills=(8, 10)),
            Tile(32, 64, 4, 2, spills=(8, 10)),
            Tile(32, 32, 4, 2),
        ),
        "dropout": (
            Tile(64, 64, 4, 3, spills=(8, 10)),
            Tile(32, 128, 8, 2),
            Tile(32, 64, 4, 2),
        ),
        "factors": (
            Tile(64, 64, 4, 2, only_even=True),
            Tile(32, 64, 4, 2, spills=(8,)),
            Tile(32, 32, 4, 2, spills=(9, 10)),
        ),
        "factors_and_dropout": (
            Tile(16, 32, 4, 2),
            Tile(32, 64, 8, 2, spills=(8, 10)),
            Tile(32, 64, 4, 2, spills=(8, 9)),
        ),
        "table": (Tile(64, 64, 4, 2, spills=(8,)), Tile(32, 64, 4, 2)),
    },
    "backward_queries": {
        "narrow": (Tile(128, 64, 8, 3, spills=(8,)), Tile(64, 64, 4, 2)),
        "wide": (Tile(64, 64, 8, 1),),
        "dropout": (Tile(128, 64, 8, 3), Tile(64, 64, 4, 2)),
        "factors": (Tile(64, 64, 4, 2, spills=(8,)), Tile(64, 32, 4, 2)),
        "table": (Tile(64, 64, 4, 1, spills=(8,), only_even=True), Tile(64, 32, 4, 2)),
    },
    # with the gradient of the line
    "backward_queries_and_line": {
        "narrow": (Tile(64, 64, 4, 2), Tile(64, 64, 4, 3)),
        "wide": (Tile(64, 32, 4, 2),),
        "dropout": (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)),
        "factors": (
            Tile(64, 64, 4, 2, spills=(8,), only_even=True),
            Tile(64, 32, 4, 2),
        ),
    },
}
#: tiles of all kernels in float32, and with dropout for wide heads
SMALL = Tile(32, 32, 4, 2)
#: smallest number of queries, over sentences and heads, at which tiles are timed
AUTOTUNED = 2**16


def select_tiles(
    kernel: str,
    dtype: torch.dtype,
    width: int,
    major: int,
    dropout: bool = False,
    has_window: bool = False,
    score: str = "line",
    is_full: bool = False,
) -> tuple[Tile, ...]:
    """The tiles of a kernel for a GPU of compute capability ``major``.

    Args:
        score: "factors" or "table" with such scores, otherwise "line"
        is_full: all tiles are full, and nothing is masked
    """
    if dtype == torch.float32 or (dropout and width > 64):
        return (SMALL,)
    # with a window the larger tiles of this kernel spill registers
    is_small = has_window and major == 10 and kernel == "backward_queries_and_line"
    kind = "dropout" if dropout or is_small else "wide" if width > 64 else "narrow"
    if score != "line":
        has_own = dropout and f"{score}_and_dropout" in TILES[kernel]
        kind = f"{score}_and_dropout" if has_own else score
    tiles = TILES[kernel][kind]
    tiles = tuple(
        tile for tile in tiles if major not in tile.spills and (is_full or not tile.only_even)
    )
    # the other tiles may spill registers
    is_small = is_small or (dropout and (has_window or score != "line"))
    return tiles[-1:] if is_small else tiles


def offsets(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
    """The backend "offsets": `attend`, or another backend where the kernels can't run.

    The backward pass stores 2 (BM + BN) / (BM BN) float32 numbers for each score whose line needs
    a gradient, where a tile has BM queries and BN keys: 100 MB for 12 heads, 8 sentences of 2,048
    tokens and tiles of 64 x 64. With dropout the forward pass stores a bit for each score until the
    backward pass: 50 MB in a layer of 12 heads with 8 sentences of 2,048 tokens. The probability is
    rounded to a multiple of 1 / 256 (`count_parts`).

    Raises:
        UserError: Triton can't be imported
    """
    call = call.fold_temperature()
    if any(isinstance(score, Dense) for score in call.scores):  # a `Sum` that can't be split
        return sdpa(call)
    layout, (batch, heads, queries, width) = call.layout, call.q.shape
    scores = {kind: x for x in call.scores for kind in NATIVE if isinstance(x, kind)}
    factored = scores.get(Factors)
    columns = factored.columns(call.q.dtype) if isinstance(factored, Factors) else ()
    rank = columns[0].size(3) if columns else 0
    if (
        len(scores) < len(call.scores)
        or scores.keys() >= {Offsets, QueryOffsets}
        or (not scores and layout.window is None)
        or not (layout.is_toeplitz or (scores.keys() == {Factors} and layout.window is None))
        or not kernels_fit(call.q.device, call.q.dtype, width, rank, QueryOffsets in scores)
    ):
        return reference(call)
    factors: tuple[Tensor | None, ...] = None, None
    line, table, low, high = None, None, 0, 0
    for score in call.scores:
        if isinstance(score, Offsets):
            line = score.line.float().expand(heads, -1)  # (H, Tq + Tk - 1)
        elif isinstance(score, QueryOffsets):
            table, low = score.rows.contiguous(), score.low  # (B, H, Tq, high - low + 1)
            high = low + table.size(3) - 1
        else:
            factors = tuple(lay_out_factor(x, heads, call.q.dtype) for x in columns)
    pad = None
    if layout.hidden is not None:
        pad = torch.zeros(batch, call.k.size(2), device=call.q.device)  # (B, Tk)
        pad = pad.masked_fill(layout.hidden, -math.inf)
    seed = None
    if call.dropout:
        seed = torch.randint(2**31, (1,), device=call.q.device)
    causal = layout.causal and queries > 1
    options = causal, call.dropout, layout.window, low, high, torch.is_grad_enabled()
    out, *_ = attend(call.q, call.k, call.v, line, table, *factors, pad, seed, *options)
    return out, None


#: the scores that the kernels add, one of each type
NATIVE: tuple[type[Score], ...] = (Offsets, Factors, QueryOffsets)
#: the rank of factors is padded to a multiple of this number, so that vectors are aligned in memory
ALIGNED = 16


def lay_out_factor(x: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """A factor (B|1, H|1, T, r) in the kernels' memory order and type, with zeros at the end of r.

    Returns:
        (B|1, H, T, r), where r is a multiple of `ALIGNED`
    """
    x = x.to(dtype).expand(-1, heads, -1, -1)
    return F.pad(x, (0, -x.size(3) % ALIGNED)).contiguous()


#: a probability of dropout is rounded to a multiple of 1 / PARTS
PARTS = 256


def count_parts(dropout: float) -> int:
    """The number of `PARTS` whose share is the rounded probability; only 0 is rounded to 0."""
    return min(max(round(dropout * PARTS), 1), PARTS - 1) if dropout else 0


Outputs = tuple[Tensor, Tensor, Tensor]
Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]

# --- operators ------------------------------------------------------------------------------


def attend(*inputs: Any) -> Outputs:
    """`offset_attention`, in eager mode without the overhead of a registered operator.

    Without kernels, forward and backward take 0.6 of the operator's time on one CPU thread.
    """
    if is_recorded(inputs[0]):
        return offset_attention(*inputs)
    return OffsetAttention.apply(*inputs)


def is_recorded(x: Tensor) -> bool:
    """Whether operations are recorded (`torch.compile`), or x has no numbers, so no kernel runs."""
    return torch.compiler.is_compiling() or type(x) is not Tensor


def forward(
    q: Tensor, k: Tensor, v: Tensor, line: Tensor | None, table: Tensor | None, a: Tensor | None,
    c: Tensor | None, pad: Tensor | None, seed: Tensor | None, causal: bool, dropout: float,
    window: int | None, low: int, high: int, needs_bits: bool,
) -> Outputs:  # fmt: skip
    """softmax(q k^T + toeplitz(line) + table by offset + a c^T + mask) v.

    Args:
        q: (B, H, Tq, d_h), scaled; k, v: (B, H, Tk, d_h)
        line: (H, Tq + Tk - 1) float32, ascending: the score of each offset; None: no such score
        table: (B, H, Tq, high - low + 1): each query's score of each offset; None: no such score
        a, c: (B|1, H, Tq, r) and (B|1, H, Tk, r), see `lay_out_factor`; None: no such score
        pad: (B, Tk) float32, -inf at keys that are padding, 0 at others; None: no padding
        seed: (1,) int64, of dropout; None: no dropout
        causal: keys after the query are masked, too, as in `Layout.mask`
        dropout: the probability that a weight is dropped, see `count_parts`
        window: the largest distance of a key that a query sees; None: no limit
        low, high: the smallest and the largest offset of ``table``; others are clipped
        needs_bits: whether a backward pass follows, which reads what is dropped

    Returns:
        (B, H, Tq, d_h); log2 of each softmax's denominator, times 1 - dropout, (B, H, Tq) float32;
        a bit for each weight, see `empty_outputs`
    """
    launch = Launch(q, k, v, line, table, a, c, pad, seed, causal, dropout, window, low, high)
    outputs = empty_outputs(q, k, seed is not None and needs_bits)
    launch.forward(*outputs)
    return outputs


def empty_outputs(q: Tensor, k: Tensor, has_bits: bool) -> Outputs:
    """Empty tensors for the outputs of `forward`.

    The third one is a word of 32 bits for each block of 16 queries, block of 64 keys, and thread of
    a warp that multiplies these (`offset_kernels`). Blocks are added until they are 128 queries and
    keys. The tensor is empty unless ``has_bits``.
    """
    blocks = -(-q.size(2) // 128) * 8, -(-k.size(2) // 128) * 2
    shape = (*q.shape[:2], *blocks, 32) if has_bits else (0,)
    norm = q.new_empty(q.shape[:3], dtype=torch.float32)
    return empty_activations(q), norm, q.new_empty(shape, dtype=torch.int32)


#: `forward` as one operator, which torch.compile does not trace
offset_attention = torch.library.custom_op(
    "diet_fairseq::offset_attention", forward, mutates_args=()
)


@offset_attention.register_fake
def _(q: Tensor, k: Tensor, *rest: Any) -> Outputs:
    seed, needs_bits = rest[6], rest[-1]
    return empty_outputs(q, k, seed is not None and needs_bits)


def gradients(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, line: Tensor | None, table: Tensor | None,
    a: Tensor | None, c: Tensor | None, pad: Tensor | None, seed: Tensor | None, causal: bool,
    dropout: float, window: int | None, low: int, high: int, out: Tensor, norm: Tensor,
    bits: Tensor, needs_line: bool,
) -> Gradients:  # fmt: skip
    """The gradients of q, k, v, line, table, a and c.

    Those of scores that are None are empty, and the line's is empty unless ``needs_line``.
    """
    launch = Launch(q, k, v, line, table, a, c, pad, seed, causal, dropout, window, low, high)
    return launch.backward(gradient, out, norm, bits, needs_line)


offset_attention_backward = torch.library.custom_op(
    "diet_fairseq::offset_attention_backward", gradients, mutates_args=()
)


@offset_attention_backward.register_fake
def _(_: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    line, *others = rest[:4]
    scores = [line if rest[-1] else None, *others]
    activations = [empty_activations(x) for x in (q, k, v)]
    return *activations, *(q.new_empty(0) if x is None else torch.empty_like(x) for x in scores)


def save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
    ctx.options = inputs[9:14]
    ctx.save_for_backward(*inputs[:9], *output)


def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    *inputs, out, norm, bits = ctx.saved_tensors
    needs_line = ctx.needs_input_grad[3]  # fixed slopes have no gradient
    compute: Any = offset_attention_backward if is_recorded(gradient) else gradients
    results = compute(gradient, *inputs, *ctx.options, out, norm, bits, needs_line)
    is_needed = [x is not None for x in inputs[:7]]
    is_needed[3] = needs_line
    grads = (x if needed else None for x, needed in zip(results, is_needed, strict=True))
    return *grads, *[None] * 8


offset_attention.register_autograd(backward, setup_context=save_for_backward)


class OffsetAttention(torch.autograd.Function):
    """`forward` for eager mode."""

    # a separate setup_context would make PyTorch inspect the signature at every call
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Outputs:
        output = forward(*inputs)
        ctx.set_materialize_grads(False)  # only the first output has a gradient
        save_for_backward(ctx, inputs, output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        return backward(ctx, *gradients)


def empty_activations(x: Tensor) -> Tensor:
    """An empty tensor of x's shape (B, H, T, d_h) with fairseq's memory order (T, B, H d_h)."""
    batch, heads, tokens, width = x.shape
    return x.new_empty(tokens, batch, heads, width).permute(1, 2, 0, 3)


# --- kernels --------------------------------------------------------------------------------


class Launch:
    """The kernels for one call, with the arguments that they share."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, line: Tensor | None, table: Tensor | None,
        a: Tensor | None, c: Tensor | None, pad: Tensor | None, seed: Tensor | None, causal: bool,
        dropout: float, window: int | None, low: int, high: int,
    ) -> None:  # fmt: skip
        self.q, self.k, self.v = q, k, v
        self.line = None if line is None else (line * math.log2(math.e)).contiguous()
        self.table, self.a, self.c = table, a, c
        self.clipped = None
        if table is not None:  # scores of far keys, side by side in memory
            scores = torch.stack([table[..., 0], table[..., -1]], dim=2)
            self.clipped = scores.float() * math.log2(math.e)
        self.pad, self.seed, self.causal, self.parts = pad, seed, causal, count_parts(dropout)
        self.window, self.low, self.high = window, low, high
        self.batch, self.heads, self.queries, self.width = q.shape
        self.keys, self.rank = k.size(2), 0 if a is None else a.size(3)
        self.major = torch.cuda.get_device_capability(q.device)[0] if q.is_cuda else 9

    @property
    def is_even(self) -> bool:
        """Whether no tile needs checks of queries and keys."""
        is_checked = self.causal or self.window is not None
        return is_even(self.queries, self.keys) and not is_checked

    @property
    def is_full(self) -> bool:
        """Whether all tiles are full, and nothing is masked."""
        return self.is_even and self.pad is None

    @property
    def dropout(self) -> float:
        """The rounded probability that a weight is dropped."""
        return self.parts / PARTS

    def forward(self, out: Tensor, norm: Tensor, bits: Tensor) -> None:
        self.q, self.k, self.v = (
            x if x.stride(-1) == 1 else token_major(x) for x in (self.q, self.k, self.v)
        )
        strides = [stride for x in (self.q, self.k, self.v) for stride in x.stride()[:3]]
        self.start("forward", (), (self.seed, given(bits), out, norm, *strides))

    def backward(
        self, gradient: Tensor, out: Tensor, norm: Tensor, bits: Tensor, needs_line: bool
    ) -> Gradients:
        """The gradients of q, k, v, line, table, a and c; a missing score has an empty gradient."""
        self.q, self.k, self.v = (token_major(x) for x in (self.q, self.k, self.v))
        g = token_major(gradient)
        delta = self.delta(g, token_major(out))
        grad_q, grad_k, grad_v = (empty_activations(x) for x in (self.q, self.k, self.v))
        # each sentence has gradients of factors; the table's is 0 where no pair has the offset
        grad_a, grad_c = (
            None if x is None else x.new_empty(self.batch, *x.shape[1:]) for x in (self.a, self.c)
        )
        grad_table = None if self.table is None else torch.zeros_like(self.table)
        self.start("backward_keys", (g,), (given(bits), norm, delta, grad_k, grad_v, grad_c))
        others = given(bits), norm, delta, grad_q, grad_a, grad_table
        grad_line = None
        if needs_line:
            grad_line = self.query_and_line_gradients(g, others)
        else:
            self.start("backward_queries", (g,), (*others, None))
        scores = grad_line, grad_table, sum_like(grad_a, self.a), sum_like(grad_c, self.c)
        of_line, of_table, of_a, of_c = (g.new_empty(0) if x is None else x for x in scores)
        return grad_q, grad_k, grad_v, of_line, of_table, of_a, of_c

    def query_and_line_gradients(self, g: Tensor, others: tuple[Tensor | None, ...]) -> Tensor:
        """Write the gradients in ``others``, and return the line's, (H, Tq + Tk - 1)."""
        name = "backward_queries_and_line"

        def shape(size: dict[str, int]) -> tuple[int, ...]:
            """B, H, tiles of queries, tiles of keys, diagonals of blocks, diagonals of a block."""
            tiles = -(-self.queries // size["BM"]), -(-self.keys // size["BN"])
            return self.batch, self.heads, *tiles, (size["BM"] + size["BN"]) // 8, 16

        sizes = [{"BM": tile.queries, "BN": tile.keys} for tile in self.tiles(name)]
        entries = max(math.prod(shape(size)) for size in sizes)
        sums = torch.empty(entries, device=g.device)
        size = self.start(name, (g,), (*others, sums))
        return self.line_gradient(sums, **size)

    def line_gradient(self, sums: Tensor, BM: int, BN: int) -> Tensor:
        """The gradient of the line, (H, Tq + Tk - 1), from sums over diagonals of tiles."""
        gradient = sums.new_empty(self.heads, self.queries + self.keys - 1)
        lowest, highest = (BM - self.queries) // 8, (BM + self.keys - 2) // 8
        sizes = self.batch, self.heads, self.queries, self.keys, self.window, lowest
        with torch.cuda.device_of(sums):
            kernels().offset_line[highest - lowest + 1, self.heads](
                *(sums, gradient, *sizes), BM=BM, BN=BN, CAUSAL=self.causal
            )
        return gradient

    def delta(self, g: Tensor, out: Tensor) -> Tensor:
        """(B, H, Tq): the products of g and out, both `token_major`, times 1 - dropout."""
        delta = g.new_empty(g.shape[:3], dtype=torch.float32)
        grid = (-(-self.queries // 64), self.batch * self.heads)
        with torch.cuda.device_of(g):
            kernels().offset_delta[grid](
                g, out, delta, self.queries, self.dropout, **column_sizes(self.width), BM=64
            )
        return delta

    def tiles(self, kernel: str) -> tuple[Tile, ...]:
        """The tiles to choose from; only the first one where timing is not worth it."""
        score = "table" if self.table is not None else "factors" if self.rank else "line"
        options = bool(self.parts), self.window is not None, score, self.is_full
        tiles = select_tiles(kernel, self.q.dtype, self.width, self.major, *options)
        small = self.batch * self.heads * self.queries < AUTOTUNED
        return tiles[:1] if small or torch.are_deterministic_algorithms_enabled() else tiles

    def start(
        self, name: str, gradient: tuple[Tensor, ...], others: tuple[Any, ...]
    ) -> dict[str, int]:
        """Start a program for each tile, sentence and head, and return the size of the tiles."""
        kernel = autotune_kernel(name, self.tiles(name))
        tokens, size = (self.keys, "BN") if name == "backward_keys" else (self.queries, "BM")
        length = 1 << (self.keys - 1).bit_length()
        strides = [x.stride(0) if x is not None and len(x) > 1 else 0 for x in (self.a, self.c)]
        sizes = length, self.heads, self.queries, self.keys, self.window, self.low, self.high
        rest: dict[str, Any] = {}
        if name == "forward":
            rest = {"dropout": self.dropout, "PARTS": self.parts}
        elif name != "backward_keys":
            rest = {"ROWS": product_rows(self.major)}
        with torch.cuda.device_of(self.q):
            kernel[lambda meta: (-(-tokens // meta[size]), self.batch * self.heads)](
                *(*gradient, self.q, self.k, self.v, self.line, self.table, self.clipped),
                *(self.a, self.c, self.pad, *others, *strides, *sizes),
                **column_sizes(self.width),
                **factor_sizes(self.rank),
                **rest,
                EVEN=self.is_even,
                CAUSAL=self.causal,
                P=precision(),
                enable_fp_fusion=True,  # a default until Triton 3.9
            )
        return kernel.best_config.kwargs


def given(bits: Tensor) -> Tensor | None:
    """None if the tensor is empty, so that a kernel is compiled without it."""
    return bits if bits.numel() else None


def column_sizes(width: int) -> dict[str, int]:
    """The width d of vectors, and the next power of 2, W, at least 16 as products need."""
    return {"d": width, "W": max(16, 1 << (width - 1).bit_length())}


def factor_sizes(rank: int) -> dict[str, int]:
    """The rank r, a multiple of 16, and the powers of 2 with R and X columns that contain it.

    X is 0 unless R is a power of 2 that is slightly smaller than r. All are 0 without factors.
    """
    if rank == 0:
        return {"r": 0, "R": 0, "X": 0}
    wide = 1 << (rank - 1).bit_length()
    rest = rank - wide // 2
    if 8 * rest <= wide and rest:
        return {"r": rank, "R": wide // 2, "X": 1 << (rest - 1).bit_length()}
    return {"r": rank, "R": wide, "X": 0}


def product_rows(major: int) -> int:
    """The smallest number of rows of a product on a GPU of compute capability ``major``.

    More rows would make the gradient of a line with factors spill registers on 8.0.
    """
    return 64 if major >= 9 else 16


def sum_like(x: Tensor | None, factor: Tensor | None) -> Tensor | None:
    """The sum over sentences of a gradient (B, H, T, r) of a factor that all sentences share."""
    if x is None or factor is None or len(factor) == len(x):
        return x
    return x.sum(0, keepdim=True, dtype=torch.float32).to(factor.dtype)


def is_even(queries: int, keys: int) -> bool:
    """Whether all tiles are full."""
    return not (queries % EVEN or keys % EVEN)


def token_major(x: Tensor) -> Tensor:
    """x (B, H, T, d_h) in memory order (T, B, H d_h), as fairseq's projections; rarely copies."""
    return x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)


@cache
def autotune_kernel(name: str, tiles: tuple[Tile, ...]) -> Any:
    """A kernel that uses the fastest of these tiles, timed once for each width, length and mask.

    Triton times the tiles at the first such call, and keeps its choice in a file (from Triton 3.4
    on), so that later runs on the machine choose the same tile and return the same bits. Lengths
    are rounded up to powers of 2. No CUDA graph can be recorded before the tiles are timed.
    """
    module = kernels()
    configs = [
        module.triton.Config(
            {"BM": tile.queries, "BN": tile.keys}, num_warps=tile.warps, num_stages=tile.stages
        )
        for tile in tiles
    ]
    has_file = "cache_results" in signature(module.triton.autotune).parameters
    options = {"cache_results": True} if has_file else {}
    key = ["length", "d", "r", "high", "CAUSAL", "window"]
    tune = module.triton.autotune(configs, key, **options)
    return tune(getattr(module, f"offset_{name.removesuffix('_and_line')}"))


def kernels() -> ModuleType:
    """`offset_kernels`, which Triton compiles when they first run."""
    try:
        import triton.language as tl

        if not hasattr(tl, "gather"):
            raise ImportError("this version is older")
        from . import offset_kernels
    except ImportError as error:
        raise UserError(
            f"--attention-backend offsets needs Triton 3.3 or newer ({error}): pip install "
            "'triton>=3.3', or use auto"
        ) from error
    return offset_kernels


def precision() -> str:
    """The precision of float32 products, by PyTorch's flags."""
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):  # from PyTorch 2.9 on
        return "tf32" if matmul.fp32_precision == "tf32" else "ieee"
    return "tf32" if matmul.allow_tf32 else "ieee"
