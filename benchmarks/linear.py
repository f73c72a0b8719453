"""Long inputs: time and peak memory per token, of full attention, compressed keys and windows.

    python -m benchmarks.linear [--lengths 512 1024 ... 16384] [--rounds 5] [--out FOLDER]

Every length has the same number of tokens, without padding. Linformer's k is fixed. "attention"
runs the attention sub-layers of an encoder one after the other, and "layer" runs its whole layers.
A forward pass is in eval mode and without gradients. A step also computes the gradients of the
input and the parameters, without dropout. "window" is rope with --window. Scores that all layers
share are computed once, and counted. Each measurement of peak memory has a process of its own, and
the memory before it is subtracted. A process that needs more than --memory is "out of memory".
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

from diet_fairseq.models.adapters import PositionalEncoder
from diet_fairseq.positions.layout import Layout

from .encoders import SHAPES, STOCK, words
from .harness import Timing, forget_peak, in_fork, in_turn, machine, memory, save

WINDOW = "window"
ROWS = (STOCK, "diet_abs", "linformer", "diet_abs_lin", WINDOW)
PARTS, PASSES = ("attention", "layer"), ("forward", "step")
NO_MEMORY = "out of memory"


@dataclass(frozen=True)
class Cell:
    """A model (row), length, part and pass to measure."""

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


def encoder_of(row: str, length: int, args: Namespace, **model_options: Any) -> Any:
    """The layers of a RoBERTa of the row's scheme."""
    arch = {STOCK: "roberta", WINDOW: "roberta_rope"}.get(row, f"roberta_{row}")
    names = "layers", "embed_dim", "ffn_embed_dim", "attention_heads"
    model = {f"encoder_{n}": v for n, v in zip(names, SHAPES[args.size], strict=True)}
    model |= {"encoder_layers": args.layers, "max_positions": length}
    if row.endswith(("linformer", "lin")):
        model |= {"projection_length": args.projection_length}
        model |= {"projection_sharing": args.projection_sharing}
    if row == WINDOW:
        model |= {"position_window": args.window}
    filled = Namespace(arch=arch, **model, **model_options)
    ARCH_CONFIG_REGISTRY[arch](filled)
    torch.manual_seed(1)
    task = Namespace(source_dictionary=words(100))
    return ARCH_MODEL_REGISTRY[arch].build_model(filled, task).encoder.sentence_encoder


def through(encoder: Any, x: Tensor, part: str) -> Tensor:
    """x (T, B, d) through all layers, or their attention alone, as the encoder's own loop does."""
    if isinstance(encoder, PositionalEncoder):
        layout = Layout.without_padding(x.size(0), x.device)
        context = encoder.create_context(layout, x.size(1))
        for layer in encoder.layers:
            module: Any = layer if part == "layer" else layer.self_attn
            x = module(x, context)[0]
        return x
    for layer in encoder.layers:
        if part == "layer":
            x = layer(x, encoder_padding_mask=None)
        else:
            x, _ = layer.self_attn(x, x, x, key_padding_mask=None, need_weights=False)
    return x


def peak(cell: Cell, args: Namespace) -> float | None:
    """Peak MiB of the cell in this process; None: more than it may have."""
    run = cell.run(args)
    before, limit = memory("VmRSS"), int((memory("VmSize") + 1024 * args.memory) * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    forget_peak()
    try:
        run()
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        return None
    return memory("VmHWM") - before


Figures = dict[Cell, tuple[Timing | None, float | None]]


def measure(args: Namespace) -> Figures:
    """Time, and peak memory in MiB, of every cell; neither where memory isn't enough."""
    figures: Figures = {}
    groups = [
        [Cell(row, *group) for row in args.rows]
        for group in product(args.lengths, args.parts, args.passes)
    ]
    # before this process computes anything, so that it is small
    peaks = {cell: in_fork(peak, cell, args) for cells in groups for cell in cells}
    for cells in groups:
        runs = {cell.row: cell.run(args) for cell in cells if peaks[cell] is not None}
        timings = {timing.name: timing for timing in in_turn(runs, args.rounds)}
        figures |= {cell: (timings.get(cell.row), peaks[cell]) for cell in cells}
        first = cells[0]
        description = f"{first.part}, {first.kind}, n = {first.length:,}"
        print(description, file=sys.stderr, flush=True)
        if args.out:
            mib = {cell.row: peaks[cell] for cell in cells}
            path = args.out / f"linear-{first.part}-{first.kind}-{first.length}.json"
            save(path, description, list(timings.values()), mib=mib, arguments=arguments_of(args))
    return figures


def arguments_of(args: Namespace) -> dict[str, Any]:
    return {name: str(v) if isinstance(v, Path) else v for name, v in vars(args).items()}


def per_token(figures: Figures, cell: Cell, args: Namespace) -> tuple[float | None, float | None]:
    """Microseconds in a layer, and KiB in all of them together."""
    timing, mib = figures[cell]
    time = None if timing is None else 1e6 * timing.median / args.tokens / args.layers
    return time, None if mib is None else 1024 * mib / args.tokens


def table(figures: Figures, args: Namespace, part: str, kind: str) -> Iterator[str]:
    """Markdown: lengths against rows; time, then memory."""
    columns = " | ".join(f"{row}, {unit}" for unit in ("µs", "KiB") for row in args.rows)
    yield f"| n | {columns} |"
    yield f"|{' --- |' * (1 + 2 * len(args.rows))}"
    for length in args.lengths:
        cells = [per_token(figures, Cell(row, length, part, kind), args) for row in args.rows]
        texts = [
            NO_MEMORY if value is None else f"{value:.1f}"
            for values in zip(*cells, strict=True)
            for value in values
        ]
        yield f"| {length:,} | {' | '.join(texts)} |"


def plot(figures: Figures, args: Namespace, path: Path) -> None:
    """Both axes logarithmic: time above, memory below, a column for each part and pass."""
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    columns = list(product(args.parts, args.passes))
    figure = Figure(figsize=(4 * len(columns), 7), layout="constrained")
    axes = figure.subplots(2, len(columns), squeeze=False, sharey="row")
    for column, (part, kind) in enumerate(columns):
        for row in args.rows:
            cells = [per_token(figures, Cell(row, n, part, kind), args) for n in args.lengths]
            for line, values in enumerate(zip(*cells, strict=True)):
                numbers = [float("nan") if value is None else value for value in values]
                axes[line, column].loglog(args.lengths, numbers, "o-", label=row)
        axes[0, column].set(title=f"{part}, {kind}")
        for panel in axes[:, column]:
            panel.set(xlabel="n")
            panel.set_xticks(args.lengths, [f"{n:,}" for n in args.lengths])
            panel.xaxis.minorticks_off()
            panel.grid(alpha=0.3, which="both")
    for panel, unit in zip(axes[:, 0], ("µs per token and layer", "KiB per token"), strict=True):
        panel.set(ylabel=unit)
        panel.yaxis.set_major_formatter("{x:,.0f}")
    axes[0, 0].legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    lengths = [512, 1024, 2048, 4096, 8192, 16384]
    add = parser.add_argument
    add("--lengths", nargs="+", type=int, default=lengths)
    add("--tokens", type=int, default=16384, help="tokens in a batch (default: %(default)s)")
    add("--size", default="small", choices=SHAPES)
    add("--layers", type=int, default=4, help="(default: %(default)s)")
    add("--projection-length", type=int, default=128, help="k (default: %(default)s)")
    add("--projection-sharing", default="none")
    add("--window", type=int, default=64, help="W (default: %(default)s)")
    add("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    add("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    add("--passes", nargs="+", default=list(PASSES), choices=PASSES)
    add("--memory", type=float, default=8, help="GiB for a cell (default: %(default)s)")
    add("--rounds", type=int, default=5)
    add("--out", type=Path, help="folder for the figures as JSON, and the plot")
    args = parser.parse_args()

    figures = measure(args)
    for part, kind in product(args.parts, args.passes):
        print(f"\n{part}, {kind}: µs per token and layer, peak KiB per token\n")
        print(*table(figures, args, part, kind), sep="\n")
    if args.out:
        plot(figures, args, args.out / "linear.png")
    print({**machine(), **arguments_of(args)})


if __name__ == "__main__":
    main()
