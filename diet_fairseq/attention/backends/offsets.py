"""Attention with a score for every offset, in Triton kernels that keep no Tq x Tk matrix.

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
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...errors import UserError
from ...positions.scores import Offsets
from .call import AttentionCall, kernels_fit
from .reference import reference

# Notation: B sentences, H heads, Tq queries, Tk keys, d_h width of a head.

#: all tiles are full at lengths that are multiples of this number
EVEN = 128


class Tile(NamedTuple):
    """A kernel's work: queries and keys in a tile, warps, and stages of its pipeline.

    GPUs of the compute capabilities ``spills`` have too few registers for this tile.
    """

    queries: int
    keys: int
    warps: int
    stages: int
    spills: tuple[int, ...] = ()


#: kernel -> the tiles in half precision for heads of at most 64 numbers, for wider heads, and with
#: dropout. Calls time all tiles that spill no register (tests/attention/test_compiled_kernels.py):
#: large tiles need fewer instructions, and tiles of 4 warps let two or more programs share a
#: multiprocessor. On an H200 and an H100 the first tile of a row was the fastest, or 1% slower than
#: the fastest (results/performance/attention-h200.csv, attention-h100-offsets.csv).
TILES = {
    "forward": (
        (Tile(128, 64, 8, 3), Tile(128, 64, 4, 3, spills=(10,)), Tile(64, 64, 4, 2)),
        (Tile(128, 64, 8, 2),),
        (Tile(128, 64, 8, 2, spills=(10,)), Tile(64, 64, 8, 2)),
    ),
    "backward_keys": (
        (Tile(64, 64, 4, 3, spills=(8,)), Tile(32, 128, 8, 2), Tile(32, 64, 4, 2)),
        (
            Tile(64, 64, 8, 2, spills=(8, 10)),
            Tile(32, 64, 4, 2, spills=(8, 10)),
            Tile(32, 32, 4, 2),
        ),
        (Tile(32, 64, 4, 2, spills=(10,)), Tile(32, 64, 8, 2)),
    ),
    "backward_queries": (
        (Tile(128, 64, 8, 3, spills=(8,)), Tile(64, 64, 4, 2)),
        (Tile(64, 64, 8, 1),),
        (Tile(64, 32, 4, 2),),
    ),
    # with the gradient of the line
    "backward_queries_and_line": (
        (Tile(64, 64, 4, 2), Tile(64, 64, 4, 3)),
        (Tile(64, 32, 4, 2),),
        (Tile(64, 32, 4, 2),),
    ),
}
#: tiles of all kernels in float32, and for wide heads with dropout
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
) -> tuple[Tile, ...]:
    """The tiles of a kernel for a GPU of compute capability ``major``."""
    if dtype == torch.float32 or (dropout and width > 64):
        return (SMALL,)
    # with a window the larger tiles of this kernel spill registers
    is_small = has_window and major == 10 and kernel == "backward_queries_and_line"
    tiles = TILES[kernel][2 if dropout or is_small else width > 64]
    return tuple(tile for tile in tiles if major not in tile.spills)


def offsets(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
    """The backend "offsets": `attend`, or the reference where the kernels can't run.

    The backward pass stores 2 (BM + BN) / (BM BN) float32 numbers for each score whose line needs
    a gradient, where a tile has BM queries and BN keys: 100 MB for 12 heads, 8 sentences of 2,048
    tokens and tiles of 64 x 64.

    Raises:
        UserError: Triton can't be imported
    """
    call = call.fold_temperature()
    layout, (batch, heads, queries, width) = call.layout, call.q.shape
    fits = layout.is_toeplitz and kernels_fit(call.q.device, call.q.dtype, width)
    if not call.scores and layout.window is not None and fits:
        line = call.q.new_zeros(heads, queries + call.k.size(2) - 1, dtype=torch.float32)
    elif len(call.scores) == 1 and isinstance(call.scores[0], Offsets) and fits:
        line = call.scores[0].line.float().expand(heads, -1)  # (H, Tq + Tk - 1)
    else:
        return reference(call)
    pad = None
    if layout.hidden is not None:
        pad = torch.zeros(batch, call.k.size(2), device=call.q.device)  # (B, Tk)
        pad = pad.masked_fill(layout.hidden, -math.inf)
    seed = None
    if call.dropout:
        seed = torch.randint(2**31, (1,), device=call.q.device)
    causal = layout.causal and queries > 1
    options = causal, call.dropout, layout.window
    out, _ = attend(call.q, call.k, call.v, line, pad, seed, *options)
    return out, None


# --- operators ------------------------------------------------------------------------------


def attend(*inputs: Any) -> tuple[Tensor, Tensor]:
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
    q: Tensor, k: Tensor, v: Tensor, line: Tensor, pad: Tensor | None, seed: Tensor | None,
    causal: bool, dropout: float, window: int | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(q k^T + toeplitz(line) + mask) v.

    Args:
        q: (B, H, Tq, d_h), scaled; k, v: (B, H, Tk, d_h)
        line: (H, Tq + Tk - 1) float32, ascending: the score of each offset
        pad: (B, Tk) float32, -inf at keys that are padding, 0 at others; None: no padding
        seed: (1,) int64, of dropout; None: no dropout
        causal: keys after the query are masked, too, as in `Layout.mask`
        dropout: the probability that a weight is dropped
        window: the largest distance of a key that a query sees; None: no limit

    Returns:
        (B, H, Tq, d_h), and log2 of each softmax's denominator, (B, H, Tq) float32
    """
    launch = Launch(q, k, v, line, pad, seed, causal, dropout, window)
    out, norm = empty_activations(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    launch.forward(out, norm)
    return out, norm


#: `forward` as one operator, which torch.compile does not trace
offset_attention = torch.library.custom_op(
    "diet_fairseq::offset_attention", forward, mutates_args=()
)


@offset_attention.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return empty_activations(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def gradients(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, line: Tensor, pad: Tensor | None,
    seed: Tensor | None, causal: bool, dropout: float, window: int | None, out: Tensor,
    norm: Tensor, needs_line: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k, v and line; the line's is empty unless ``needs_line``."""
    launch = Launch(q, k, v, line, pad, seed, causal, dropout, window)
    return launch.backward(gradient, out, norm, needs_line)


offset_attention_backward = torch.library.custom_op(
    "diet_fairseq::offset_attention_backward", gradients, mutates_args=()
)


@offset_attention_backward.register_fake
def _(_: Tensor, q: Tensor, k: Tensor, v: Tensor, line: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return (
        empty_activations(q),
        empty_activations(k),
        empty_activations(v),
        line.new_empty(line.shape if rest[-1] else (0,)),
    )


def save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.options = inputs[6:]
    ctx.save_for_backward(*inputs[:6], *output)


def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *inputs, out, norm = ctx.saved_tensors
    needs_line = ctx.needs_input_grad[3]  # fixed slopes have no gradient
    compute: Any = offset_attention_backward if is_recorded(gradient) else gradients
    *results, of_line = compute(gradient, *inputs, *ctx.options, out, norm, needs_line)
    return *results, of_line if needs_line else None, *[None] * 5


offset_attention.register_autograd(backward, setup_context=save_for_backward)


class OffsetAttention(torch.autograd.Function):
    """`forward` for eager mode."""

    # a separate setup_context would make PyTorch inspect the signature at every call
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        output = forward(*inputs)
        ctx.set_materialize_grads(False)  # nobody uses the second output's gradient
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
        self, q: Tensor, k: Tensor, v: Tensor, line: Tensor, pad: Tensor | None,
        seed: Tensor | None, causal: bool, dropout: float, window: int | None,
    ) -> None:  # fmt: skip
        self.q, self.k, self.v = q, k, v
        self.line = (line * math.log2(math.e)).contiguous()
        self.pad, self.seed, self.causal, self.dropout = pad, seed, causal, dropout
        self.window = window
        self.batch, self.heads, self.queries, self.width = q.shape
        self.keys = k.size(2)

    def forward(self, out: Tensor, norm: Tensor) -> None:
        self.q, self.k, self.v = (
            x if x.stride(-1) == 1 else token_major(x) for x in (self.q, self.k, self.v)
        )
        strides = [stride for x in (self.q, self.k, self.v) for stride in x.stride()[:3]]
        self.start("forward", (), (out, norm, *strides))

    def backward(
        self, gradient: Tensor, out: Tensor, norm: Tensor, needs_line: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The gradients of q, k, v and the line; the line's is empty unless it is needed."""
        self.q, self.k, self.v = (token_major(x) for x in (self.q, self.k, self.v))
        g = token_major(gradient)
        delta = self.delta(g, token_major(out))
        grad_q, grad_k, grad_v = (empty_activations(x) for x in (self.q, self.k, self.v))
        self.start("backward_keys", (g,), (norm, delta, grad_k, grad_v))
        if needs_line:
            return grad_q, grad_k, grad_v, self.query_and_line_gradients(g, norm, delta, grad_q)
        self.start("backward_queries", (g,), (norm, delta, grad_q, None))
        return grad_q, grad_k, grad_v, self.line.new_empty(0)

    def query_and_line_gradients(
        self, g: Tensor, norm: Tensor, delta: Tensor, grad_q: Tensor
    ) -> Tensor:
        """Write the gradient of q to grad_q, and return the line's, (H, Tq + Tk - 1)."""
        name = "backward_queries_and_line"

        def shape(size: dict[str, int]) -> tuple[int, ...]:
            """B, H, tiles of queries, tiles of keys, diagonals of blocks, diagonals of a block."""
            tiles = -(-self.queries // size["BM"]), -(-self.keys // size["BN"])
            return self.batch, self.heads, *tiles, (size["BM"] + size["BN"]) // 8, 16

        sizes = [{"BM": tile.queries, "BN": tile.keys} for tile in self.tiles(name)]
        sums = norm.new_empty(max(math.prod(shape(size)) for size in sizes))
        size = self.start(name, (g,), (norm, delta, grad_q, sums))
        return self.line_gradient(sums, **size)

    def line_gradient(self, sums: Tensor, BM: int, BN: int) -> Tensor:
        """The gradient of the line, (H, Tq + Tk - 1), from sums over diagonals of tiles."""
        gradient = torch.empty_like(self.line)
        lowest, highest = (BM - self.queries) // 8, (BM + self.keys - 2) // 8
        sizes = self.batch, self.heads, self.queries, self.keys, self.window, lowest
        with torch.cuda.device_of(sums):
            kernels().offset_line[highest - lowest + 1, self.heads](
                *(sums, gradient, *sizes), BM=BM, BN=BN, CAUSAL=self.causal
            )
        return gradient

    def delta(self, g: Tensor, out: Tensor) -> Tensor:
        """(B, H, Tq): the products of g and out, which are token-major (`token_major`)."""
        delta = g.new_empty(g.shape[:3], dtype=torch.float32)
        grid = (-(-self.queries // 64), self.batch * self.heads)
        with torch.cuda.device_of(g):
            kernels().offset_delta[grid](
                g, out, delta, self.queries, **column_sizes(self.width), BM=64
            )
        return delta

    def tiles(self, kernel: str) -> tuple[Tile, ...]:
        """The tiles to choose from; only the first one where timing is not worth it."""
        capability = torch.cuda.get_device_capability(self.q.device) if self.q.is_cuda else (9, 0)
        options = bool(self.dropout), self.window is not None
        tiles = select_tiles(kernel, self.q.dtype, self.width, capability[0], *options)
        small = self.batch * self.heads * self.queries < AUTOTUNED
        return tiles[:1] if small or torch.are_deterministic_algorithms_enabled() else tiles

    def start(
        self, name: str, gradient: tuple[Tensor, ...], others: tuple[Any, ...]
    ) -> dict[str, int]:
        """Start a program for each tile, sentence and head, and return the size of the tiles."""
        kernel = autotune_kernel(name, self.tiles(name))
        tokens, size = (self.keys, "BN") if name == "backward_keys" else (self.queries, "BM")
        length = 1 << (self.keys - 1).bit_length()
        sizes = length, self.heads, self.queries, self.keys, self.window, self.dropout
        is_checked = self.causal or self.window is not None
        with torch.cuda.device_of(self.q):
            kernel[lambda meta: (-(-tokens // meta[size]), self.batch * self.heads)](
                *(*gradient, self.q, self.k, self.v, self.line, self.pad, self.seed, *others),
                *sizes,
                **column_sizes(self.width),
                EVEN=is_even(self.queries, self.keys) and not is_checked,
                CAUSAL=self.causal,
                P=precision(),
                enable_fp_fusion=True,  # a default until Triton 3.9
            )
        return kernel.best_config.kwargs


def column_sizes(width: int) -> dict[str, int]:
    """The width d of vectors, and the next power of 2, W, at least 16 as products need."""
    return {"d": width, "W": max(16, 1 << (width - 1).bit_length())}


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
    tune = module.triton.autotune(configs, ["length", "d", "CAUSAL", "window"], **options)
    return tune(getattr(module, f"offset_{name.removesuffix('_and_line')}"))


def kernels() -> ModuleType:
    """`offset_kernels`, which Triton compiles when they first run."""
    try:
        from . import offset_kernels

        if not hasattr(offset_kernels.tl, "gather"):
            raise ImportError("this version is older")
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
