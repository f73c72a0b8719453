"""Attention on a GPU, one layer's call: every kernel and tile of ours, and PyTorch's kernels.

    python -m benchmarks.kernels [--what pytorch ours] [--lengths 512 2048] [--tokens 16384]

A call has 12 heads of 64 numbers in bfloat16 and nothing is padded. Forward and backward pass are
timed separately, by CUDA events (`triton.testing.do_bench`). PyTorch's profiler times each of our
kernels, once for each tile: one kernel gets the tile, and the other kernels keep their first tile.
The error is the largest error of the output and the gradients, relative to their norm in float32.
``--label`` distinguishes rows of several versions of the package. ``--device cpu
--heads 2 --width 16 --tokens 64 --lengths 64`` tries the command in Triton's interpreter.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from diet_fairseq.attention.backends import BACKENDS, AttentionCall
from diet_fairseq.attention.terms import compute_scores
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.positions.layout import Layout, toeplitz
from diet_fairseq.positions.scores import Dense, Offsets, Score

from .device import now, profile_kernels, succeeds
from .harness import append_line, machine

#: tiles to try beside those of the package: queries, keys, warps, stages
TILES = {
    "forward": [
        *((128, 64, 8, 3), (128, 64, 8, 2), (128, 64, 4, 2), (128, 64, 4, 3)),
        *((64, 128, 4, 2), (64, 64, 4, 2), (64, 64, 4, 3), (128, 128, 8, 2)),
    ],
    "backward_keys": [
        *((64, 128, 8, 2), (64, 64, 4, 2), (64, 64, 4, 3), (64, 64, 4, 1)),
        *((32, 128, 8, 2), (32, 128, 4, 2), (32, 64, 4, 2)),
    ],
    "backward_queries": [(128, 64, 8, 2), (64, 64, 4, 2), (128, 64, 8, 3), (64, 64, 4, 1)],
    "backward_queries_and_line": [
        *((64, 64, 4, 2), (64, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2)),
    ],
}
#: PyTorch's kernels: whether they get a score, and whether it needs a gradient
FUSED = {
    "cuDNN": (SDPBackend.CUDNN_ATTENTION, False, False),
    "cuDNN, score": (SDPBackend.CUDNN_ATTENTION, True, False),
    "flash": (SDPBackend.FLASH_ATTENTION, False, False),
    "efficient, score": (SDPBackend.EFFICIENT_ATTENTION, True, False),
    "efficient, score with gradient": (SDPBackend.EFFICIENT_ATTENTION, True, True),
}
#: products of n x n x d numbers in a pass
PRODUCTS = {"forward": 2, "backward": 5}


class Inputs:
    """Random inputs of one call, and the output and gradients that float32 gives for them."""

    def __init__(self, args: argparse.Namespace, length: int) -> None:
        torch.manual_seed(1)
        self.device = args.device
        self.length, self.sentences = length, max(1, args.tokens // length)
        self.heads, self.width = args.heads, args.width
        dtype = torch.float32 if args.device == "cpu" else torch.bfloat16
        # in memory as fairseq's projections, (T, B, H d_h)
        self.q, self.k, self.v, self.gradient = (
            torch.randn(length, self.sentences, args.heads, args.width, device=args.device)
            .to(dtype)
            .permute(1, 2, 0, 3)
            for _ in range(4)
        )
        self.q = self.q * args.width**-0.5
        self.line = torch.randn(args.heads, 2 * length - 1, device=args.device)
        padding = torch.zeros(self.sentences, length, dtype=torch.bool, device=args.device)
        self.layout = Layout.of_self_attention(padding)

    def leaves(self) -> list[Tensor]:
        """q, k, v and the line, to compute gradients of."""
        tensors = (self.q, self.k, self.v, self.line)
        return [tensor.detach().requires_grad_() for tensor in tensors]

    def count_operations(self, products: int) -> float:
        return products * 2 * self.sentences * self.heads * self.length**2 * self.width

    def reference(self, has_score: bool) -> list[Tensor]:
        """The output and the gradients of q, k, v and the line in float32, a sentence at a time."""
        line = self.line.detach().requires_grad_()
        results = []
        for sentence in zip(self.q, self.k, self.v, self.gradient, strict=True):
            q, k, v, gradient = (x.detach().float().requires_grad_() for x in sentence)
            logits = q @ k.mT
            if has_score:
                logits = logits + toeplitz(line, self.length)
            out = logits.softmax(-1) @ v
            out.backward(gradient.detach())
            results.append((out, q.grad, k.grad, v.grad))
        together = [torch.stack(tensors).detach() for tensors in zip(*results, strict=True)]
        return together if line.grad is None else [*together, line.grad]


def milliseconds(run: Callable[[], object], device: str) -> float:
    """The median time of a call."""
    if device == "cuda":
        from triton.testing import do_bench

        return float(do_bench(run, return_mode="median"))
    start = now()
    run()
    return 1000 * (now() - start)


def relative_error(results: list[Tensor], expected: list[Tensor]) -> float:
    """The largest error of several results, relative to the norm of each; NaN is not hidden."""
    errors = [
        float((result.float() - right).norm() / right.norm())
        for result, right in zip(results, expected, strict=False)
        if result.shape == right.shape  # a whole score's gradient is not compared
    ]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def print_row(args: argparse.Namespace, record: dict[str, object], cells: list[str]) -> None:
    print(f"| {args.label} | {' | '.join(cells)} |", flush=True)
    if args.out:
        append_line(args.out, {"label": args.label, **record})


def measure_passes(
    args: argparse.Namespace,
    inputs: Inputs,
    name: str,
    attend: Callable[..., Tensor],
    leaves: list[Tensor],
    expected: list[Tensor],
) -> None:
    """Print the time and the error of ``attend(*leaves)``, and of its backward pass."""
    out = attend(*leaves)

    def forward() -> None:
        attend(*leaves)

    def backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(out, leaves, inputs.gradient, retain_graph=True)

    error = relative_error([out.detach(), *backward()], expected)
    for what, run in (("forward", forward), ("backward", backward)):
        ms = milliseconds(run, args.device)
        rate = inputs.count_operations(PRODUCTS[what]) / ms / 1e9
        record = {"n": inputs.length, "row": name, "pass": what, "ms": ms, "error": error}
        cells = [f"{inputs.length}", name, what, f"{ms:.4f}", f"{rate:.0f}", f"{error:.1e}"]
        print_row(args, record, cells)


def call_backend(
    inputs: Inputs, backend: str, q: Tensor, k: Tensor, v: Tensor, line: Tensor
) -> Tensor:
    """Attention by a backend of the package, which gets the score in the form that it reads."""
    score: Score = Offsets(line)
    native = BACKENDS[backend].native_score
    if native is None or not issubclass(Offsets, native):
        score = Dense(toeplitz(line, inputs.length)[None])
    return BACKENDS[backend](AttentionCall(q, k, v, (score,), (), inputs.layout, 0.0))[0]


def measure_pytorch(args: argparse.Namespace, inputs: Inputs) -> None:
    """Print both passes of PyTorch's kernels; a CPU has one kernel for all of them."""
    expected = {has_score: inputs.reference(has_score) for has_score in (False, True)}
    score = toeplitz(inputs.line, inputs.length).to(inputs.q.dtype).contiguous()[None]
    for name, (kernel, has_score, has_gradient) in FUSED.items():
        leaves = inputs.leaves()[:3]
        if has_gradient:
            leaves.append(score.detach().requires_grad_())

        def attend(
            q: Tensor,
            k: Tensor,
            v: Tensor,
            mask: Tensor | None = score if has_score else None,
            kernel: SDPBackend = kernel,
        ) -> Tensor:
            mask = None if mask is None else mask.expand(len(q), -1, -1, -1)
            with sdpa_kernel(SDPBackend.MATH if args.device == "cpu" else kernel):
                return F.scaled_dot_product_attention(q, k, v, mask, scale=1.0)

        def run(
            name: str = name,
            attend: Callable[..., Tensor] = attend,
            leaves: list[Tensor] = leaves,
            has_score: bool = has_score,
        ) -> None:
            measure_passes(args, inputs, name, attend, leaves, expected[has_score])

        succeeds(f"{inputs.length}, {name}", run)


def measure_backends(args: argparse.Namespace, inputs: Inputs) -> None:
    """Print both passes of the package's backends, the score's look-up included."""
    expected = inputs.reference(True)
    for backend in BACKENDS:
        if backend == "factors":  # the same as "sdpa" for this score
            continue
        attend = partial(call_backend, inputs, backend)
        passes = partial(measure_passes, args, inputs, backend, attend, inputs.leaves(), expected)
        succeeds(f"{inputs.length}, {backend}", passes)


def kernel_modules() -> dict[str, ModuleType]:
    """The backends whose module has a table of tiles for its kernels, and the module."""
    modules = {
        name: sys.modules[backend.compute.__module__]
        for name, backend in BACKENDS.items()
        if backend.native_score and issubclass(Offsets, backend.native_score)
    }
    return {name: module for name, module in modules.items() if hasattr(module, "select_tiles")}


@contextmanager
def one_tile(module: ModuleType, kernel: str, tile: tuple[int, ...]) -> Iterator[None]:
    """Give a kernel this tile, and the others the first of their own."""
    select_tiles = module.select_tiles

    def replacement(name: str, *rest: object) -> tuple[object, ...]:
        return (module.Tile(*tile),) if name == kernel else select_tiles(name, *rest)[:1]

    with patch.object(module, "select_tiles", replacement):
        yield


def measure_tiles(args: argparse.Namespace, inputs: Inputs, backend: str) -> None:
    """Print the time of each kernel of a backend with each tile."""
    module = kernel_modules()[backend]
    major = torch.cuda.get_device_capability()[0] if args.device == "cuda" else 9
    for kernel in module.TILES:
        if kernel == "backward_queries":  # of a line without a gradient
            continue
        chosen = module.select_tiles(kernel, inputs.q.dtype, inputs.width, major)
        tiles = dict.fromkeys([*(tuple(tile)[:4] for tile in chosen), *TILES.get(kernel, [])])
        if args.device == "cpu":  # the interpreter is slow, and tiles mean nothing to it
            tiles = dict.fromkeys([(32, 32, 4, 2)])
        for tile in tiles:

            def call(kernel: str = kernel, tile: tuple[int, ...] = tile) -> None:
                with one_tile(module, kernel, tile):
                    leaves = inputs.leaves()
                    out = call_backend(inputs, backend, *leaves)
                    torch.autograd.grad(out, leaves, inputs.gradient)

            name = f"{backend}, {kernel}"
            if succeeds(f"{inputs.length}, {name}, {tile}", call):  # compiles it, too
                measure_tile(args, inputs, name, kernel, tile, call)


def measure_tile(
    args: argparse.Namespace,
    inputs: Inputs,
    name: str,
    kernel: str,
    tile: tuple[int, ...],
    call: Callable[[], None],
) -> None:
    def calls() -> None:
        for _ in range(args.calls):
            call()

    times = {
        event: ms / args.calls for event, (ms, _) in profile_kernels(calls, args.device).items()
    }
    if args.device == "cuda":  # the interpreter has no kernels: all operators stand for them
        # one function serves with and without the gradient of the line
        times = {kernel: times["offset_" + kernel.removesuffix("_and_line")]}
    ms = sum(times.values())
    record = {"n": inputs.length, "row": name, "tile": tile, "ms": ms}
    shown = " x ".join(map(str, tile[:2])) + f", {tile[2]} warps, {tile[3]} stages"
    print_row(args, record, [f"{inputs.length}", name, shown, f"{ms:.4f}", "", ""])


def measure_table(args: argparse.Namespace, inputs: Inputs) -> None:
    """Print the times of the look-up in a layer's table of offsets, and of its gradient."""
    limit = Limit(inputs.length, "--max-positions")
    shape = AttentionShape(inputs.heads, inputs.width, inputs.heads * inputs.width, limit, limit)
    scheme = SCHEMES["diet_rel"].create(shape).to(args.device)
    parameters = [*scheme.parameters()]

    def run() -> None:
        [score] = compute_scores((scheme,), inputs.layout, Offsets)
        assert isinstance(score, Offsets)
        torch.autograd.grad(score.line, parameters, inputs.line)

    ms = milliseconds(run, args.device)
    name = "table of diet_rel"
    record: dict[str, object] = {"n": inputs.length, "row": name, "ms": ms}
    cells = [f"{inputs.length}", name, "look-up and gradient", f"{ms:.4f}", "", ""]
    print_row(args, record, cells)


def measure(args: argparse.Namespace, length: int) -> None:
    inputs = Inputs(args, length)
    if "pytorch" in args.what:
        measure_pytorch(args, inputs)
    if "ours" not in args.what:
        return
    measure_backends(args, inputs)
    measure_table(args, inputs)
    for backend in kernel_modules():
        measure_tiles(args, inputs, backend)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--what", nargs="+", default=["pytorch", "ours"], metavar="KERNELS")
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 2048])
    parser.add_argument("--tokens", type=int, default=16384, help="tokens in a batch (%(default)s)")
    parser.add_argument("--heads", type=int, default=12, help="heads (%(default)s)")
    parser.add_argument("--width", type=int, default=64, help="width of a head (%(default)s)")
    parser.add_argument(
        "--calls", type=int, default=10, help="profiled calls of each tile (%(default)s)"
    )
    parser.add_argument("--label", default="", help="label of all rows, such as a version")
    parser.add_argument("--out", type=Path, help="file of JSON lines to append to")
    args = parser.parse_args()
    print(f"| label | n | row | pass or tile | ms | TFLOP/s | error |\n|{' --- |' * 7}")
    for length in args.lengths:
        measure(args, length)
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print({**machine(), "device": name})


if __name__ == "__main__":
    main()
