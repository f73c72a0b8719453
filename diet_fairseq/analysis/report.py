"""The report on one or two models: a self-contained HTML page, its pictures and its tables."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import torch
from torch import Tensor

from ..atomic import atomic_file
from ..version import __version__
from . import figures, tables
from .loaded_model import LoadedModel
from .scores import ModelScores, PositionScore

TEMPLATE = Path(__file__).with_name("page.html")
INTRODUCTION = (
    "This page shows what attention has learned about positions. A score is a number in nats that "
    "is added before the softmax: one nat more multiplies the weight by 2.7. The softmax ignores a "
    "number that is added to a whole row, so the pictures show scores minus the mean of their row."
)
POSITIONS, OFFSETS, GROWTH = "Position scores", "Position scores by offset", "Scores in training"
HEADS, SEGMENTS, RANKS = "Heads", "Position and segment scores", "Ranks"
COSINES = "Position embeddings at the input"
#: the sections of the page
TEXTS = {
    POSITIONS: (
        "The heat maps show the score that positions add in every head, without the score of "
        "words (DIET, figures 4, 6 and 7). Queries run downward and keys to the right, and all "
        "maps have one colour scale; red draws a query to a key. A band along the diagonal is a "
        "score of the offset, a column at the left is a score of the first token. Positions at the "
        "input are multiplied by W_Q and W_K of layer 1; deeper layers see them mixed with words."
    ),
    OFFSETS: (
        "The curves show the mean score along each diagonal. Offset -1 is the token before the "
        "query."
    ),
    GROWTH: "The slider shows the scores by offset at every checkpoint of the run, on one scale.",
    HEADS: (
        "The table shows where heads look if positions alone decide: the mean distance in tokens "
        "and the entropy of the weights in nats. The offset and the first token each explain a "
        "share of the score's variance within rows; the offset explains all of a Toeplitz matrix. "
        "A head is named after the first token or an offset if that gets much of the weight. "
        "Other heads are local if they look much less far than equal weights do, else global."
    ),
    SEGMENTS: (
        "The heat maps show the scores of positions and segments together, for a window whose "
        "second half is a second segment (DIET, figure 6)."
    ),
    RANKS: (
        "The curves show singular values as shares of the largest one: those of position scores "
        "(DIET, figure 8), and those of attention logits on the text, which words and positions "
        "make up (figure 2). Dashed lines mark the highest possible rank. It is the head's width "
        "d_h for positions at the input, and d_h + d_p for a score of rank d_p in the head (DIET, "
        "theorem 1). A score of offsets has no such limit."
    ),
    COSINES: (
        "The pictures show the cosine similarity of position embeddings at the input (DIET, "
        "figure 5). If all pairs are alike, the embeddings say nothing about positions."
    ),
}


@dataclass(frozen=True)
class Analysis:
    """A model, the windows (B, T) that it read, their source in words, and its scores."""

    model: LoadedModel
    tokens: Tensor
    source: str
    scores: ModelScores

    @cached_property
    def heads(self) -> list[tables.Row]:
        return tables.heads(self.scores)

    @property
    def facts(self) -> dict[str, str]:
        windows, tokens = self.tokens.shape
        return self.model.facts | {"text": f"{windows} windows of {tokens} tokens: {self.source}"}


@dataclass(frozen=True)
class Item:
    """A picture, a series of pictures, or a table, with its caption.

    Attributes:
        picture: a PNG as a data: address
        frames: pictures of a slider, which starts at the last
        rows: the rows of a table, by column
    """

    caption: str
    picture: str = ""
    frames: list["Item"] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for row in self.rows for column in row))


def write(analyses: Sequence[Analysis], runs: Sequence[Sequence[Analysis]], folder: Path) -> None:
    """Write all files, the page last.

    Args:
        runs: the checkpoints of each model's run, oldest first; may be empty
    """
    limit = figures.colour_limit([analysis.scores for analysis in analyses])
    cells = []
    for number, analysis in enumerate(analyses):
        prefix = f"{number + 1}-" if len(analyses) > 1 else ""
        with figures.style():
            cells.append(draw(analysis, runs[number] if runs else (), limit, folder, prefix))
        tables.write_all(analysis.scores, analysis.heads, folder, prefix)
    html = render(
        " and ".join(analysis.model.path.name for analysis in analyses),
        [(str(analysis.model.path), analysis.facts) for analysis in analyses],
        [(title, text, [items[title] for items in cells]) for title, text in TEXTS.items()],
    )
    with atomic_file(folder / "index.html") as file:
        file.write(html)


def draw(
    analysis: Analysis, run: Sequence[Analysis], limit: float, folder: Path, prefix: str
) -> dict[str, list[Item]]:
    """The pictures and tables of one model by the titles of `TEXTS`; pictures are files, too."""
    scores = analysis.scores

    def picture(name: str, figure: figures.Figure, caption: str) -> Item:
        png = figures.png(figure)
        with atomic_file(folder / f"{prefix}{name}.png", "wb") as file:
            file.write(png)
        return Item(caption, f"data:image/png;base64,{b64encode(png).decode()}")

    def by_place(
        name: str, figure: Callable[..., figures.Figure], scores: Sequence[PositionScore]
    ) -> list[Item]:
        groups = [(place, list(group)) for place, group in groupby(scores, lambda s: s.place)]
        return [
            picture(f"{name}-{place.replace(chr(39), '').replace(' ', '-')}", figure(group), place)
            for place, group in groups
        ]

    heat_maps = partial(figures.heat_maps, limit=limit)
    with_offsets = [score for score in scores.positions if score.has_offsets]
    frames = [
        [score for score in checkpoint.scores.positions
         if score.has_offsets and score.place == "encoder"]
        for checkpoint in run
    ]  # fmt: skip
    growth = []
    if len(run) > 1 and all(frames):
        limits = figures.offset_limits(frames)
        pictures = [
            picture(
                f"frame-{number}",
                figures.offset_curves(frame, limits),
                f"{checkpoint.model.updates} updates ({checkpoint.model.path.name})",
            )
            for number, (checkpoint, frame) in enumerate(zip(run, frames, strict=True))
        ]
        growth = [Item("checkpoint", frames=pictures)]
    return {
        POSITIONS: by_place("positions", heat_maps, scores.positions),
        OFFSETS: by_place("offsets", figures.offset_curves, with_offsets),
        GROWTH: growth,
        HEADS: [Item("all heads with a position score", rows=analysis.heads)]
        if analysis.heads
        else [],
        SEGMENTS: by_place("segments", heat_maps, scores.segments),
        RANKS: [
            picture("ranks", figures.spectra(scores), f"text: {analysis.source}"),
            Item("attention logits, mean over heads", rows=tables.logits_by_layer(scores)),
        ],
        COSINES: [
            picture(
                f"cosines-{stack}",
                figures.cosines(embeddings),
                f"{stack}: the median over all pairs is {tables.median_cosine(embeddings):.2f}",
            )
            for stack, embeddings in scores.embeddings.items()
        ],
    }


def render(
    title: str,
    models: Sequence[tuple[str, dict[str, str]]],
    sections: Sequence[tuple[str, str, list[list[Item]]]],
) -> str:
    """The page as HTML, with all text escaped.

    Args:
        models: name and facts of each model
        sections: title, text, and the items of each model
    """
    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    environment.filters["cell"] = _format_cell
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        title=title,
        introduction=INTRODUCTION,
        models=models,
        sections=[section for section in sections if any(section[2])],
        footer=f"diet_fairseq {__version__}, PyTorch {torch.__version__}. The CSV files beside "
        "this page have the numbers.",
    )


def _format_cell(value: Any) -> str:
    """The text of a table's cell; empty for None and undefined values."""
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value) if isinstance(value, str | int) else ""
