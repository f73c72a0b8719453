"""Figures in grey ink on a transparent background, for pages of any colour."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from . import measures
from .scores import ModelScores, PositionScore

INK = "#7d7d7d"
INK_SETTINGS = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color",
         "legend.labelcolor")  # fmt: skip
SETTINGS: dict[Any, Any] = dict.fromkeys(INK_SETTINGS, INK) | {
    "axes.facecolor": "none", "figure.facecolor": "none", "font.size": 9
}  # fmt: skip
#: offsets to either side in line plots
MAX_OFFSET = 24
#: inches: width of the panel of one head, and of the widest picture
PANEL_SIZE, MAX_WIDTH = 1.1, 13.0


def figure_style() -> AbstractContextManager[None]:
    """A context with the matplotlib settings of all figures."""
    return matplotlib.rc_context(SETTINGS)


def render_png(figure: Figure) -> bytes:
    """A PNG with a palette of 256 colours, which has a sixth of the size of a true-colour PNG."""
    true_colours, file = BytesIO(), BytesIO()
    figure.savefig(true_colours, format="png", dpi=110, bbox_inches="tight", transparent=True)
    # FASTOCTREE keeps transparency
    Image.open(true_colours).quantize(256, method=Image.Quantize.FASTOCTREE).save(file, "png")
    return file.getvalue()


def create_panels(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Any]]:
    """A figure of this size in inches with ``columns`` panels side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def centre_scores(score: PositionScore) -> Tensor:
    """(H, T, S): the score minus the mean of its rows, NaN for hidden keys."""
    return measures.centre_rows(score.matrix, score.causal and score.has_offsets)


def colour_limit(models: Sequence[ModelScores]) -> float:
    """The largest score on the colour scale, which all models share, in nats."""
    scores = [score for model in models for score in (*model.positions, *model.segments)]
    if not scores:
        return 1.0
    values = torch.cat([centre_scores(score).flatten() for score in scores]).abs()
    return max(float(np.nanquantile(values.numpy(), 0.995)), 1e-3)


def layer_name(score: PositionScore) -> str:
    return f"layer {score.layer}" if score.layer else "all layers"


def draw_heat_maps(scores: Sequence[PositionScore], limit: float) -> Figure:
    """Heat maps of the heads at one place: a row per layer, queries downward, keys rightward.

    All maps are drawn as one image, because drawing a hundred panels takes a minute.
    """
    heads = max(len(score.matrix) for score in scores)
    _, queries, keys = scores[0].matrix.shape
    gap = max(1, keys // 16)
    height, width = queries + gap, keys + gap
    canvas = torch.full((len(scores) * height, heads * width), float("nan"))
    for row, score in enumerate(scores):
        for column, matrix in enumerate(centre_scores(score)):
            y, x = row * height, column * width
            canvas[y : y + queries, x : x + keys] = matrix
    panel = min(PANEL_SIZE, MAX_WIDTH / heads) if heads > 2 else 2 * PANEL_SIZE
    figure, [axes] = create_panels(heads * panel + 1.2, len(scores) * panel * queries / keys + 0.4)
    image = axes.imshow(canvas, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="antialiased")
    axes.set_xticks(
        [column * width + keys / 2 for column in range(heads)],
        ["all heads"] if heads == 1 else [f"head {head + 1}" for head in range(heads)],
    )
    axes.xaxis.tick_top()
    axes.set_yticks(
        [row * height + queries / 2 for row in range(len(scores))], map(layer_name, scores)
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, fraction=0.02, pad=0.01).set_label("score, nats")
    return figure


def draw_offset_curves(scores: Sequence[PositionScore]) -> Figure:
    """The mean score at each offset: a line per head, a panel per layer."""
    figure, axes = create_panels(min(MAX_WIDTH, max(3.2, 2.4 * len(scores))), 2.6, len(scores))
    for panel, score in zip(axes, scores, strict=True):
        tokens = score.matrix.size(-1)
        near = min(MAX_OFFSET, tokens - 1)
        offsets = range(-near, 1 if score.causal else near + 1)
        middle = slice(tokens - 1 - near, tokens - 1 + offsets.stop)
        lines = measures.mean_by_offset(score.matrix)[:, middle]
        if panel is not axes[0]:
            panel.sharey(axes[0])  # before plotting, so that curves widen the limits of all panels
            panel.tick_params(labelleft=False)
        for head, line in enumerate(lines, 1):
            panel.plot(offsets, line, linewidth=1.2, label=f"head {head}")
        panel.axvline(0, color=INK, linewidth=0.5)
        panel.set_title(layer_name(score), fontsize=9)
        panel.set_xlabel("offset j - i")
        if panel is axes[0]:
            panel.set_ylabel("score, nats")
            if len(lines) > 1:
                panel.legend(fontsize=6, frameon=False, ncols=2)
    return figure


def draw_spectra(scores: ModelScores) -> Figure:
    """Singular values, as shares of the largest, of position scores and of attention logits."""
    figure, axes = create_panels(10, 3.2, 2)
    positions = [
        (f"{score.place}, {layer_name(score)}", score.singular, score.rank)
        for score in scores.positions
    ]
    encoder = [item for item in scores.logits if item.place == "encoder"]
    logits = [(f"layer {item.layer}", item.singular, item.bound) for item in encoder]
    titles = ("position scores", "attention logits on the text, encoder")
    for panel, lines, title in zip(axes, (positions, logits), titles, strict=True):
        for number, (name, values, bound) in enumerate(lines):
            shares = (values / values[:, :1].clamp(min=1e-30)).clamp(min=1e-9)  # (H, r)
            colour = matplotlib.colormaps["viridis"](number / max(1, len(lines) - 1))
            labels = [name] + [None] * (len(shares) - 1)
            panel.plot(range(1, shares.size(1) + 1), shares.T, color=colour, linewidth=0.8,
                       alpha=0.7, label=labels)  # fmt: skip
            if bound is not None:
                panel.axvline(bound + 0.5, color="#c44e52", linewidth=1, linestyle="--")
        panel.set(yscale="log", ylim=(1e-8, 2))
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("index of the singular value (dashed: highest possible rank)")
        if 0 < len(lines) <= 8:
            panel.legend(fontsize=6, frameon=False)
    axes[0].set_ylabel("share of the largest value")
    return figure


def draw_cosines(embeddings: Tensor) -> Figure:
    """Cosine similarities of position embeddings (T, d): the matrix and a histogram."""
    matrix = measures.cosines(embeddings)
    figure, [heat_map, histogram] = create_panels(8, 3, 2)
    image = heat_map.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1)
    heat_map.set(xlabel="position", ylabel="position")
    figure.colorbar(image, ax=heat_map, fraction=0.046)
    pairs = matrix[torch.ones_like(matrix, dtype=torch.bool).triu(1)]
    histogram.hist(pairs, bins=50, range=(-1, 1), color="#4c72b0")
    histogram.set(xlabel="cosine similarity of two positions", ylabel="pairs")
    histogram.set_title(f"median {pairs.median():.2f}", fontsize=9)
    return figure
