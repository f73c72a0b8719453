"""The pictures: grey ink on a transparent ground, which suits a page of any colour."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from itertools import groupby
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from . import measures
from .scores import Found, Scores

INK = "#7d7d7d"
STYLE: dict[Any, Any] = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.labelcolor": INK,
    "font.size": 9,
}
#: offsets to either side that line plots show
NEAR = 24
#: inches: a panel of a head, and the widest picture
PANEL, WIDEST = 1.1, 13.0


def style() -> AbstractContextManager[None]:
    """To draw in."""
    return matplotlib.rc_context(STYLE)


def png(figure: Figure) -> bytes:
    """With a palette of 256 colours, which takes a sixth of the room."""
    drawn, file = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=110, bbox_inches="tight", transparent=True)
    image = Image.open(drawn).quantize(256, method=Image.Quantize.FASTOCTREE)  # it keeps alpha
    image.save(file, format="png")
    return file.getvalue()


def new(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Any]]:
    """A figure with axes in a row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def shown(one: Scores) -> Tensor:
    """(H, T, S): the scores that a query sees, less the mean of its row, NaN where it sees none."""
    seen = measures.visible(one.matrix, one.causal and one.square)
    seen = seen.masked_fill(seen.isinf(), float("nan"))
    return seen - seen.nanmean(-1, keepdim=True)


def scale(several: Sequence[Found]) -> float:
    """The score at which colours end, one for all models that are compared."""
    values = [
        shown(one).flatten() for found in several for one in (*found.positions, *found.segments)
    ]
    if not values:
        return 1.0
    every = torch.cat(values).abs()
    every = every[~every.isnan()]
    every = every[:: max(1, len(every) // 1_000_000)]  # quantile takes so many and no more
    return max(float(every.quantile(0.995)), 1e-3)


def by_place(items: Sequence[Scores]) -> Iterator[tuple[str, list[Scores]]]:
    for place, group in groupby(items, key=lambda one: one.place):
        yield place, list(group)


def heat_maps(items: list[Scores], largest: float) -> Figure:
    """All heads of a place, a row for each layer; queries are downward, keys to the right.

    One image: drawing a hundred axes takes a minute.
    """
    heads = max(len(one.matrix) for one in items)
    _, queries, keys = items[0].matrix.shape
    gap = max(1, keys // 16)
    canvas = torch.full((len(items) * (queries + gap), heads * (keys + gap)), float("nan"))
    for row, one in enumerate(items):
        for column, matrix in enumerate(shown(one)):
            top, left = row * (queries + gap), column * (keys + gap)
            canvas[top : top + queries, left : left + keys] = matrix
    panel = min(PANEL, WIDEST / heads) if heads > 2 else 2 * PANEL
    figure, [axes] = new(heads * panel + 1.2, len(items) * panel * queries / keys + 0.4)
    image = axes.imshow(
        canvas, cmap="RdBu_r", vmin=-largest, vmax=largest, interpolation="antialiased"
    )
    axes.set_xticks(
        [column * (keys + gap) + keys / 2 for column in range(heads)],
        ["all heads"] if heads == 1 else [f"head {head + 1}" for head in range(heads)],
    )
    axes.xaxis.tick_top()
    axes.set_yticks(
        [row * (queries + gap) + queries / 2 for row in range(len(items))],
        [f"layer {one.layer}" if one.layer else "all layers" for one in items],
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, fraction=0.02, pad=0.01)
    bar.set_label("score, nats")
    return figure


def curves(items: list[Scores], limits: tuple[float, float] | None = None) -> Figure:
    """The mean score at each offset, a line for each head, a panel for each layer."""
    figure, axes = new(min(WIDEST, max(3.2, 2.4 * len(items))), 2.6, len(items))
    for panel, one in zip(axes, items, strict=True):
        tokens = one.matrix.size(-1)
        near = min(NEAR, tokens - 1)
        middle = slice(tokens - 1 - near, tokens if one.causal else tokens + near)
        lines = measures.mean_of_offset(one.matrix)[:, middle]
        places = range(-near, 1 if one.causal else near + 1)
        for head, line in enumerate(lines, 1):
            panel.plot(places, line, linewidth=1.2, label=f"head {head}")
        panel.axvline(0, color=INK, linewidth=0.5)
        panel.set_title(f"layer {one.layer}" if one.layer else "all layers", fontsize=9)
        panel.set_xlabel("offset j - i")
        if limits:
            panel.set_ylim(limits)
        if panel is axes[0]:
            panel.set_ylabel("score, nats")
            if len(lines) > 1:
                panel.legend(fontsize=6, frameon=False, ncols=2)
        else:
            panel.sharey(axes[0])
            panel.tick_params(labelleft=False)
    return figure


def limits_of(several: Sequence[list[Scores]]) -> tuple[float, float]:
    """The lowest and the highest point of all `curves`."""
    lines = [measures.mean_of_offset(one.matrix) for items in several for one in items]
    lowest, highest = (
        min(float(line.min()) for line in lines),
        max(float(line.max()) for line in lines),
    )
    margin = 0.05 * (highest - lowest) + 1e-3
    return lowest - margin, highest + margin


def spectra(found: Found) -> Figure:
    """Singular values as shares of the largest: of positions' scores, and of whole ones."""
    figure, (left, right) = new(10, 3.2, 2)
    colours = matplotlib.colormaps["viridis"]
    of_positions: list[Any] = [
        (one, measures.singular_values(one.matrix), one.rank) for one in found.positions
    ]
    whole: list[Any] = [
        (one, one.singular, one.bound) for one in found.whole if one.place == "encoder"
    ]
    for panel, items, title in (
        (left, of_positions, "scores of positions"),
        (right, whole, "whole scores on the text, encoder"),
    ):
        for number, (one, values, bound) in enumerate(items):
            shares = values / values[:, :1].clamp(min=1e-30)
            colour = colours(number / max(1, len(items) - 1))
            for head, line in enumerate(shares):
                label = (f"{one.place}, " if panel is left else "") + f"layer {one.layer or 'all'}"
                panel.plot(range(1, len(line) + 1), line.clamp(min=1e-9), color=colour,
                           linewidth=0.8, alpha=0.7, label=None if head else label)  # fmt: skip
            if bound is not None:
                panel.axvline(bound + 0.5, color="#c44e52", linewidth=1, linestyle="--")
        panel.set_yscale("log")
        panel.set_ylim(1e-8, 2)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("number of the singular value; dashed: the largest rank possible")
        if 0 < len(items) <= 8:
            panel.legend(fontsize=6, frameon=False)
    left.set_ylabel("share of the largest")
    return figure


def cosines(rows: Tensor) -> Figure:
    """The cosine similarity of position embeddings, as a matrix and as a distribution."""
    found = measures.cosines(rows)
    figure, (left, right) = new(8, 3, 2)
    image = left.imshow(found, cmap="RdBu_r", vmin=-1, vmax=1)
    left.set_xlabel("position")
    left.set_ylabel("position")
    figure.colorbar(image, ax=left, fraction=0.046)
    above = torch.ones_like(found, dtype=torch.bool).triu(1)
    right.hist(found[above].numpy(), bins=50, range=(-1, 1), color="#4c72b0")
    right.set_xlabel("cosine similarity of two positions")
    right.set_ylabel("pairs")
    return figure
