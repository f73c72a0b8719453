"""Figures in grey ink on a transparent ground, which suits a page of any colour."""

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
from .scores import ModelScores, Scores

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
    """matplotlib's settings for all figures."""
    return matplotlib.rc_context(STYLE)


def png(figure: Figure) -> bytes:
    """A PNG with a palette of 256 colours, which is a sixth of the size of true colours."""
    true_colours, file = BytesIO(), BytesIO()
    figure.savefig(true_colours, format="png", dpi=110, bbox_inches="tight", transparent=True)
    image = Image.open(true_colours).quantize(
        256, method=Image.Quantize.FASTOCTREE
    )  # it keeps alpha
    image.save(file, format="png")
    return file.getvalue()


def row_of_axes(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Any]]:
    """A figure with axes in a row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def centred(scores: Scores) -> Tensor:
    """(H, T, S): scores less the mean of their row, NaN where the mask hides the key."""
    matrix = measures.visible(scores.matrix, scores.causal and scores.square)
    matrix = matrix.masked_fill(matrix.isinf(), float("nan"))
    return matrix - matrix.nanmean(-1, keepdim=True)


def colour_limit(models: Sequence[ModelScores]) -> float:
    """The score at which the colour scale ends, common to all models that are compared."""
    scores = [scores for model in models for scores in (*model.positions, *model.segments)]
    if not scores:
        return 1.0
    values = torch.cat([centred(item).flatten() for item in scores]).abs()
    values = values[~values.isnan()]
    values = values[:: max(1, len(values) // 1_000_000)]  # quantile's limit
    return max(float(values.quantile(0.995)), 1e-3)


def by_place(items: Sequence[Scores]) -> Iterator[tuple[str, list[Scores]]]:
    """Groups of consecutive scores at the same place."""
    for place, group in groupby(items, key=lambda scores: scores.place):
        yield place, list(group)


def layer_name(scores: Scores) -> str:
    return f"layer {scores.layer}" if scores.layer else "all layers"


def heat_maps(items: list[Scores], largest: float) -> Figure:
    """A heat map of every head at one place: a row per layer, queries downward, keys rightward.

    One image: drawing a hundred axes takes a minute.
    """
    heads = max(len(scores.matrix) for scores in items)
    _, queries, keys = items[0].matrix.shape
    gap = max(1, keys // 16)
    canvas = torch.full((len(items) * (queries + gap), heads * (keys + gap)), float("nan"))
    for row, scores in enumerate(items):
        for column, matrix in enumerate(centred(scores)):
            y, x = row * (queries + gap), column * (keys + gap)
            canvas[y : y + queries, x : x + keys] = matrix
    panel = min(PANEL, WIDEST / heads) if heads > 2 else 2 * PANEL
    figure, [axes] = row_of_axes(heads * panel + 1.2, len(items) * panel * queries / keys + 0.4)
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
        [layer_name(scores) for scores in items],
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, fraction=0.02, pad=0.01)
    bar.set_label("score, nats")
    return figure


def curves(items: list[Scores], limits: tuple[float, float] | None = None) -> Figure:
    """The mean score at each offset: a line per head, a panel per layer."""
    figure, axes = row_of_axes(min(WIDEST, max(3.2, 2.4 * len(items))), 2.6, len(items))
    for panel, scores in zip(axes, items, strict=True):
        tokens = scores.matrix.size(-1)
        near = min(NEAR, tokens - 1)
        offsets = range(-near, 1 if scores.causal else near + 1)
        middle = slice(tokens - 1 - near, tokens - 1 + offsets.stop)
        lines = measures.mean_of_offset(scores.matrix)[:, middle]
        for head, line in enumerate(lines, 1):
            panel.plot(offsets, line, linewidth=1.2, label=f"head {head}")
        panel.axvline(0, color=INK, linewidth=0.5)
        panel.set_title(layer_name(scores), fontsize=9)
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


def curve_limits(frames: Sequence[list[Scores]]) -> tuple[float, float]:
    """The common y limits of the `curves` of all frames."""
    lines = [measures.mean_of_offset(scores.matrix) for frame in frames for scores in frame]
    lowest = min(float(line.min()) for line in lines)
    highest = max(float(line.max()) for line in lines)
    margin = 0.05 * (highest - lowest) + 1e-3
    return lowest - margin, highest + margin


def spectra(scores: ModelScores) -> Figure:
    """Singular values, as shares of the largest, of position scores and of whole scores."""
    figure, [positions, whole] = row_of_axes(10, 3.2, 2)
    colours = matplotlib.colormaps["viridis"]
    of_positions: list[Any] = [
        (item, measures.singular_values(item.matrix), item.rank) for item in scores.positions
    ]
    of_whole: list[Any] = [
        (item, item.singular, item.bound) for item in scores.whole if item.place == "encoder"
    ]
    for panel, items, title in (
        (positions, of_positions, "scores of positions"),
        (whole, of_whole, "whole scores on the text, encoder"),
    ):
        for number, (item, values, bound) in enumerate(items):
            shares = values / values[:, :1].clamp(min=1e-30)
            colour = colours(number / max(1, len(items) - 1))
            place = f"{item.place}, " if panel is positions else ""
            for head, line in enumerate(shares):
                label = None if head else f"{place}layer {item.layer or 'all'}"
                panel.plot(range(1, len(line) + 1), line.clamp(min=1e-9), color=colour,
                           linewidth=0.8, alpha=0.7, label=label)  # fmt: skip
            if bound is not None:
                panel.axvline(bound + 0.5, color="#c44e52", linewidth=1, linestyle="--")
        panel.set_yscale("log")
        panel.set_ylim(1e-8, 2)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("number of the singular value; dashed: the largest rank possible")
        if 0 < len(items) <= 8:
            panel.legend(fontsize=6, frameon=False)
    positions.set_ylabel("share of the largest")
    return figure


def cosines(embeddings: Tensor) -> Figure:
    """Cosine similarities of position embeddings (T, d): the matrix and a histogram."""
    matrix = measures.cosines(embeddings)
    figure, [heat_map, histogram] = row_of_axes(8, 3, 2)
    image = heat_map.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1)
    heat_map.set_xlabel("position")
    heat_map.set_ylabel("position")
    figure.colorbar(image, ax=heat_map, fraction=0.046)
    histogram.hist(measures.pairs(matrix), bins=50, range=(-1, 1), color="#4c72b0")
    histogram.set_xlabel("cosine similarity of two positions")
    histogram.set_ylabel("pairs")
    return figure
