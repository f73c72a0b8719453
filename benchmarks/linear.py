"""Long inputs: time and peak memory per token, of full attention and of compressed keys.

    python -m benchmarks.linear [--lengths 512 1024 ... 16384] [--rounds 5] [--out FOLDER]

The same number of tokens at every length, none of them padding, Linformer's k fixed. "attention" is
the attention sub-layers of an encoder one after the other, "layer" its whole layers; a forward pass
is in eval mode and without gradients, of a model with RoBERTa's dropout, which must not matter
there; a step goes back to input and parameters, of a model without dropout. What all layers share
is computed once for all of them, and counted. Peak memory is that of a process of its own, above
what it had before; one that needs more than --memory is "out of memory".
"""

import argparse
import logging
import resource
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import Tensor

import diet_fairseq
from diet_fairseq.attention.context import without_none
from diet_fairseq.positions.layout import Layout
from diet_fairseq.stack.encoder import PositionalEncoder
from diet_fairseq.stack.forward_context import create_context

from .encoders import SHAPES, STOCK, words
from .harness import Timing, forget_peak, in_fork, in_turn, machine, memory, save

ROWS = (STOCK, "diet_abs", "linformer", "diet_abs_lin")
PARTS, PASSES = ("attention", "layer"), ("forward", "step")
NO_MEMORY = "out of memory"


@dataclass(frozen=True)
class Cell:
    """One thing that is measured."""

    row: str
    length: int
    part: str
    kind: str

    def run(self, args: Namespace) -> Callable[[], object]:
        no_dropout = {"dropout": 0.0, "attention_dropout": 0.0} if self.kind == "step" else {}
        encoder = encoder_of(self.row, self.length, args, **no_dropout)
        x = torch.randn(self.length, args.tokens // self.length, encoder.cfg.encoder.embed_dim)
        encoder.train(self.kind == "step")

        @torch.no_grad()
        def forward() -> None:
            through(encoder, x, self.part)

        def step() -> None:
            encoder.zero_grad()
            through(encoder, x.detach().requires_grad_(), self.part).backward(x)

        return step if self.kind == "step" else forward


def encoder_of(row: str, length: int, args: Namespace, **more: Any) -> Any:
    """The layers of a RoBERTa of the row's scheme."""
    arch = "roberta" if row == STOCK else f"roberta_{row}"
    names = "layers", "embed_dim", "ffn_embed_dim", "attention_heads"
    model = {f"encoder_{n}": v for n, v in zip(names, SHAPES[args.size], strict=True)}
    model |= {"encoder_layers": args.layers, "max_positions": length}
    if row.endswith(("linformer", "lin")):
        model |= {"projection_length": args.projection_length}
        model |= {"projection_sharing": args.projection_sharing}
    filled = Namespace(arch=arch, **model, **more)
    ARCH_CONFIG_REGISTRY[arch](filled)
    torch.manual_seed(1)
    task = Namespace(source_dictionary=words(100))
    return ARCH_MODEL_REGISTRY[arch].build_model(filled, task).encoder.sentence_encoder


def through(encoder: Any, x: Tensor, part: str) -> Tensor:
    """x (T, B, d) through all layers, or their attention alone, as the encoder's own loop does."""
    context = None
    if isinstance(encoder, PositionalEncoder):
        layout = Layout.of_self_attention(torch.zeros(x.size(1), x.size(0), dtype=torch.bool))
        shared = without_none(encoder.positions, encoder.segments)
        context = create_context(encoder, layout, shared, x.size(1))
    for layer in encoder.layers:
        if part == "layer":
            x = layer(x, encoder_padding_mask=context)
        else:
            x, _ = layer.self_attn(x, x, x, key_padding_mask=context, need_weights=False)
    return x


def peak_of(cell: Cell, args: Namespace) -> float | None:
    """Peak MiB of the cell in a process of its own; None: more than it may have."""
    return in_fork(peak, cell, args)


def peak(cell: Cell, args: Namespace) -> float | None:
    run = cell.run(args)
    before, limit = memory("VmRSS"), int((memory("VmSize") + 1024 * args.memory) * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    forget_peak()
    try:
        run()
    except (RuntimeError, MemoryError) as error:
        if "can't allocate memory" not in str(error):
            raise
        return None
    return memory("VmHWM") - before


Found = dict[Cell, tuple[Timing | None, float | None]]


def measure(args: Namespace) -> Found:
    """Time, and peak memory in MiB, of every cell; neither where memory isn't enough."""
    found: Found = {}
    batches = list(product(args.lengths, args.parts, args.passes))
    # before this process has computed anything, for it to be small
    peaks = {
        cell: peak_of(cell, args)
        for rest in batches
        for cell in (Cell(row, *rest) for row in args.rows)
    }
    for length, part, kind in batches:
        cells = [Cell(row, length, part, kind) for row in args.rows]
        fits = {cell.row: cell for cell in cells if peaks[cell] is not None}
        runs = {row: cell.run(args) for row, cell in fits.items()}
        timings = {timing.name: timing for timing in in_turn(runs, args.rounds)}
        found |= {cell: (timings.get(cell.row), peaks[cell]) for cell in cells}
        print(f"{part}, {kind}, n = {length:,}", file=sys.stderr, flush=True)
        if args.out:
            mib = {cell.row: peaks[cell] for cell in cells}
            what = f"{part}, {kind}, n = {length}"
            path = args.out / f"linear-{part}-{kind}-{length}.json"
            save(path, what, list(timings.values()), mib=mib, arguments=arguments_of(args))
    return found


def arguments_of(args: Namespace) -> dict[str, Any]:
    return {name: str(v) if isinstance(v, Path) else v for name, v in vars(args).items()}


def per_token(found: Found, cell: Cell, args: Namespace) -> tuple[float | None, float | None]:
    """Microseconds in a layer, and KiB in all of them together."""
    timing, mib = found[cell]
    time = None if timing is None else 1e6 * timing.median / args.tokens / args.layers
    return time, None if mib is None else 1024 * mib / args.tokens


def table(found: Found, args: Namespace, part: str, kind: str) -> Iterator[str]:
    """Markdown: lengths against rows; time, then memory."""
    columns = " | ".join(f"{row}, {unit}" for unit in ("µs", "KiB") for row in args.rows)
    yield f"| n | {columns} |"
    yield f"|{' --- |' * (1 + 2 * len(args.rows))}"
    for length in args.lengths:
        figures = [per_token(found, Cell(row, length, part, kind), args) for row in args.rows]
        shown = [
            NO_MEMORY if figure is None else f"{figure:.1f}"
            for figure in (*(time for time, _ in figures), *(kib for _, kib in figures))
        ]
        yield f"| {length:,} | {' | '.join(shown)} |"


def growth(found: Found, args: Namespace, part: str, kind: str) -> Iterator[str]:
    """What grows from 1,024 to 8,192, and how much faster than stock that is."""
    first, last = 1024, 8192
    if not {first, last} <= set(args.lengths):
        return
    for row in args.rows:
        ends = [per_token(found, Cell(row, n, part, kind), args) for n in (first, last)]
        words = [
            f"{what} x {after / before:.2f}" if before and after else f"{what}: {NO_MEMORY}"
            for what, before, after in zip(("time", "memory"), *ends, strict=True)
        ]
        timing, _ = found[Cell(row, last, part, kind)]
        ratio = "" if timing is None else f"; at {last:,} {timing.ratio:.2f} times as fast"
        yield f"- {row}, {first:,} to {last:,}, per token: {', '.join(words)}{ratio}"


def plot(found: Found, args: Namespace, path: Path) -> None:
    """Both axes logarithmic: time above, memory below, a column for each part and pass."""
    import matplotlib

    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = list(product(args.parts, args.passes))
    figure, axes = pyplot.subplots(
        2,
        len(columns),
        figsize=(4 * len(columns), 7),
        layout="constrained",
        squeeze=False,
        sharey="row",
    )
    for column, (part, kind) in enumerate(columns):
        for row in args.rows:
            figures = [per_token(found, Cell(row, n, part, kind), args) for n in args.lengths]
            for line, values in enumerate(zip(*figures, strict=True)):
                shown = [float("nan") if value is None else value for value in values]
                axes[line, column].loglog(args.lengths, shown, "o-", label=row)
        axes[0, column].set(title=f"{part}, {kind}")
        for line in (0, 1):
            axes[line, column].set(xlabel="n")
            axes[line, column].set_xticks(args.lengths, [f"{n:,}" for n in args.lengths])
            axes[line, column].xaxis.minorticks_off()
            axes[line, column].grid(alpha=0.3, which="both")
    for line, unit in enumerate(("µs per token and layer", "KiB per token")):
        axes[line, 0].set(ylabel=unit)
        axes[line, 0].yaxis.set_major_formatter("{x:,.0f}")
    axes[1, 0].yaxis.set_minor_formatter("{x:,.0f}")
    axes[0, 0].legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    lengths = [512, 1024, 2048, 4096, 8192, 16384]
    parser.add_argument("--lengths", nargs="+", type=int, default=lengths)
    parser.add_argument("--tokens", type=int, default=16384, help="in a batch (%(default)s)")
    parser.add_argument("--size", default="small", choices=SHAPES)
    parser.add_argument("--layers", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--projection-length", type=int, default=128, help="k (%(default)s)")
    parser.add_argument("--projection-sharing", default="none")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--passes", nargs="+", default=list(PASSES), choices=PASSES)
    parser.add_argument("--memory", type=float, default=8, help="GiB a cell may take (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON, and the plot")
    args = parser.parse_args()

    found = measure(args)
    for part, kind in product(args.parts, args.passes):
        print(f"\n{part}, {kind}: µs per token and layer, peak KiB per token\n")
        print(*table(found, args, part, kind), "", *growth(found, args, part, kind), sep="\n")
    if args.out:
        plot(found, args, args.out / "linear.png")
    print({**machine(), "diet_fairseq": diet_fairseq.__version__, **arguments_of(args)})


if __name__ == "__main__":
    main()
