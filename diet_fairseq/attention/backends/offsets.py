"""Attention with a score for every offset, in Triton kernels that keep no Tq x Tk matrix.

They add no number by atomics, so that two runs give the same bits. No GPU has run these kernels
yet: they equal the reference in Triton's interpreter (``TRITON_INTERPRET=1``) on a CPU, and compile
for compute capabilities 8.0 to 10.0 (docs/performance.md).
"""

import math
from functools import reduce
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import UserError
from ...positions.scores import Offsets
from .call import AttentionCall, kernels_fit
from .reference import reference

# Notation: B sentences, H heads, Tq queries, Tk keys, d_h width of a head.

#: a ``reach`` without far offsets
EVERYWHERE = 2**30


class Tile(NamedTuple):
    """How a kernel works: queries and keys in a tile, warps, stages of its pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int


#: half precision, heads of at most 64 and at most 128 numbers: computed for an H100 from what
#: Triton's compiler says of registers and shared memory (docs/performance.md), not yet measured
TILES = {
    "forward": (Tile(128, 64, 8, 3), Tile(128, 64, 8, 2)),
    "backward_keys": (Tile(64, 128, 8, 2), Tile(64, 64, 8, 2)),
    "backward_queries": (Tile(128, 64, 8, 2), Tile(64, 64, 8, 2)),
    "backward_line": (Tile(64, 64, 4, 2), Tile(64, 64, 8, 2)),
}
#: all kernels, in float32
SMALL = Tile(32, 32, 4, 2)
#: programs of `backward_line`, which splits the batch to have at least so many
PROGRAMS = 2048


def tile_of(kernel: str, dtype: torch.dtype, width: int) -> Tile:
    return SMALL if dtype == torch.float32 else TILES[kernel][width > 64]


def offsets(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
    """`offset_attention`, or the reference where other scores or `kernels_fit` forbid it.

    Raises:
        UserError: Triton is needed and can't be imported
    """
    call = call.at_temperature()
    layout, (batch, heads, queries, width) = call.layout, call.q.shape
    lines = [score for score in call.scores if isinstance(score, Offsets)]
    regular = layout.regular and len(lines) == len(call.scores) > 0
    if not regular or not kernels_fit(call.q.device, call.q.dtype, width):
        return reference(call)
    summed = reduce(Offsets.__add__, lines)
    line = summed.line.float().expand(heads, -1)  # (H, Tq + Tk - 1)
    pad = None
    if layout.hidden is not None:
        pad = torch.zeros(batch, call.k.size(2), device=call.q.device)  # (B, Tk)
        pad = pad.masked_fill(layout.hidden, -math.inf)
    seed = None
    if call.dropout:
        seed = torch.randint(2**31, (1,), device=call.q.device)
    causal = layout.causal and queries > 1
    out, _ = offset_attention(
        call.q,
        call.k,
        call.v,
        line,
        pad,
        seed,
        EVERYWHERE if summed.reach is None else summed.reach,
        causal,
        call.dropout,
    )
    return out, None


# --- operators, which torch.compile and FSDP take as they are -------------------------------


@torch.library.custom_op("diet_fairseq::offset_attention", mutates_args=())
def offset_attention(
    q: Tensor, k: Tensor, v: Tensor, line: Tensor, pad: Tensor | None, seed: Tensor | None,
    reach: int, causal: bool, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(q k^T + toeplitz(line), masked) v.

    Args:
        q: (B, H, Tq, d_h), scaled; k, v: (B, H, Tk, d_h)
        line: (H, Tq + Tk - 1) float32, ascending: the score of each offset
        pad: (B, Tk) float32, -inf at keys that are padding, 0 at others; None: no padding
        seed: (1,) int64, of dropout; None: no dropout
        reach: the scores of all offsets from ``reach`` on are one number, and those up to
            ``-reach`` are another. Their gradients may be put together in one entry of the line.
        causal: keys after the query are masked, too, as in `Layout.mask`
        dropout: the probability that a weight is dropped

    Returns:
        (B, H, Tq, d_h), and log2 of what each softmax divides by, (B, H, Tq) float32
    """
    launch = Launch(q, k, v, line, pad, seed, reach, causal, dropout)
    out, norm = activations(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    launch.forward(out, norm)
    return out, norm


@offset_attention.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return activations(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("diet_fairseq::offset_attention_backward", mutates_args=())
def offset_attention_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, line: Tensor, pad: Tensor | None,
    seed: Tensor | None, reach: int, causal: bool, dropout: float, out: Tensor, norm: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k, v and line, given that of out."""
    launch = Launch(q, k, v, line, pad, seed, reach, causal, dropout)
    return launch.backward(gradient, out, norm)


@offset_attention_backward.register_fake
def _(_: Tensor, q: Tensor, k: Tensor, v: Tensor, line: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return activations(q), activations(k), activations(v), line.new_empty(line.shape)


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, reach, causal, dropout = inputs
    ctx.options = reach, causal, dropout
    ctx.save_for_backward(*tensors, *output)


def gradients(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *inputs, out, norm = ctx.saved_tensors
    results = offset_attention_backward(gradient, *inputs, *ctx.options, out, norm)
    return *results, *[None] * 5


offset_attention.register_autograd(gradients, setup_context=save)


def activations(x: Tensor) -> Tensor:
    """Without values, of x's shape (B, H, T, d_h), and in memory as fairseq's (T, B, H d_h)."""
    batch, heads, tokens, width = x.shape
    return x.new_empty(tokens, batch, heads, width).permute(1, 2, 0, 3)


# --- kernels --------------------------------------------------------------------------------


class Launch:
    """The kernels for one call, with the arguments that they share."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, line: Tensor, pad: Tensor | None,
        seed: Tensor | None, reach: int, causal: bool, dropout: float,
    ) -> None:  # fmt: skip
        self.q, self.k, self.v = (rows_in_memory(x) for x in (q, k, v))
        self.line = (line * math.log2(math.e)).contiguous()
        self.pad, self.seed, self.reach, self.dropout = pad, seed, reach, dropout
        self.causal = causal
        self.batch, self.heads, self.queries, self.width = q.shape
        self.keys = k.size(2)

    def forward(self, out: Tensor, norm: Tensor) -> None:
        self.run("forward", self.queries, (), (out, norm))

    def backward(
        self, gradient: Tensor, out: Tensor, norm: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        g = rows_in_memory(gradient)
        delta = torch.empty_like(norm)
        self.run_delta(g, out, delta)
        of_q, of_k, of_v = (activations(x) for x in (self.q, self.k, self.v))
        sides = 1 if self.causal else 2
        of_far = norm.new_empty(sides, *norm.shape)
        self.run("backward_keys", self.keys, (g,), (norm, delta, of_k, of_v))
        self.run("backward_queries", self.queries, (g,), (norm, delta, of_q, of_far))
        return of_q, of_k, of_v, self.of_line(g, norm, delta, of_far)

    def of_line(self, g: Tensor, norm: Tensor, delta: Tensor, of_far: Tensor) -> Tensor:
        """The gradient of the line, (H, Tq + Tk - 1)."""
        tile = self.tile("backward_line")
        far = self.tile("backward_queries")
        size, shift = tile.queries, self.keys - self.queries
        lowest, highest = 1 - -(-self.queries // size), -(-self.keys // size) - 1
        if self.near:  # a far tile's offsets are so many more at most
            reach = self.reach + far.queries + far.keys + size
            lowest = max(lowest, (shift - reach) // size)
            highest = min(highest, -(-(shift + reach) // size))
        if self.causal:
            highest = min(highest, (shift + size - 1) // size)
        diagonals = highest - lowest + 1
        parts = min(self.batch, -(-PROGRAMS // (diagonals * self.heads)))
        sentences = -(-self.batch // parts)
        parts = -(-self.batch // sentences)
        sums = norm.new_empty(parts, self.heads, diagonals, 2 * size)
        edge = bool(self.queries % size or self.keys % size)
        edge = edge or (self.causal and self.pad is not None)
        self.start(
            "backward_line", (diagonals, self.heads, parts), (g,), (norm, delta, sums),
            (self.batch, *self.sizes, lowest, sentences),
            {"S": size, "BM": far.queries, "BN": far.keys, "EDGE": edge},
        )  # fmt: skip
        # neighbours overlap by half: one's second half has the same offsets as the next's first
        blocks = F.pad(sums.sum(0), (0, 0, 0, 1))  # (H, diagonals + 1, 2 S)
        line = blocks[..., :size] + blocks[..., size:].roll(1, 1)
        first = lowest * size - size + self.queries  # the line's entry for its first number
        entries = self.queries + self.keys - 1
        ends = (first, entries - first - line.size(1) * size)
        gradient = F.pad(line.flatten(1), ends)
        if self.near:
            for side, offset in zip(of_far, (-self.reach, self.reach), strict=False):
                entry = self.keys - 1 + offset
                if 0 <= entry < entries:
                    gradient[:, entry] += side.sum((0, 2))
        return gradient

    @property
    def near(self) -> bool:
        """Whether there may be far offsets."""
        return self.reach < max(self.queries, self.keys)

    @property
    def sizes(self) -> tuple[int | float, ...]:
        return self.heads, self.queries, self.keys, self.reach, self.dropout

    def tile(self, name: str) -> Tile:
        return tile_of(name, self.q.dtype, self.width)

    def run(
        self, name: str, tokens: int, more: tuple[Tensor, ...], others: tuple[Tensor, ...]
    ) -> None:
        """Start a kernel whose programs have a tile of so many tokens."""
        tile = self.tile(name)
        size = tile.keys if name == "backward_keys" else tile.queries
        grid = (-(-tokens // size), self.batch * self.heads)
        self.start(name, grid, more, others, self.sizes, {"BM": tile.queries, "BN": tile.keys})

    def start(
        self, name: str, grid: tuple[int, ...], more: tuple[Tensor, ...],
        others: tuple[Tensor, ...], sizes: tuple[int | float, ...], constants: dict[str, Any],
    ) -> None:  # fmt: skip
        tile = self.tile(name)
        inputs = (*more, self.q, self.k, self.v)
        strides = [stride for x in inputs for stride in x.stride()[:3]]
        with torch.cuda.device_of(self.q):
            getattr(kernels(), f"offset_{name}")[grid](
                *(*inputs, self.line, self.pad, self.seed, *others, *strides, *sizes),
                **(constants | self.columns),
                NEAR=self.near,
                CAUSAL=self.causal,
                P=precision(),
                num_warps=tile.warps,
                num_stages=tile.stages,
            )

    def run_delta(self, g: Tensor, out: Tensor, delta: Tensor) -> None:
        size = 64
        grid = (-(-self.queries // size), self.batch * self.heads)
        strides = [stride for x in (g, out) for stride in x.stride()[:3]]
        with torch.cuda.device_of(self.q):
            kernels().offset_delta[grid](
                g, out, delta, *strides, self.heads, self.queries, **self.columns, BM=size
            )

    @property
    def columns(self) -> dict[str, int]:
        """The width, and the power of 2 that holds it; products want at least 16."""
        return {"d": self.width, "W": max(16, 1 << (self.width - 1).bit_length())}


def rows_in_memory(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


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
