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
from matplotlib.figure import Figure
from torch import Tensor

from ..version import __version__
from . import figures, tables
from .loaded_model import LoadedModel
from .scores import ModelScores, PositionScore


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
    """A picture or a table, with its caption.

    Attributes:
        picture: a PNG as a data: address
        rows: the rows of a table, by column
    """

    caption: str
    picture: str = ""
    rows: list[tables.Row] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for row in self.rows for column in row))


def write(analyses: Sequence[Analysis], folder: Path) -> None:
    """Write all files."""
    limit = figures.colour_limit([analysis.scores for analysis in analyses])
    columns = []
    for number, analysis in enumerate(analyses):
        prefix = f"{number + 1}-" if len(analyses) > 1 else ""
        with figures.style():
            columns.append(draw(analysis, limit, folder, prefix))
        tables.write_all(analysis.scores, analysis.heads, folder, prefix)
    html = render(
        " and ".join(analysis.model.path.name for analysis in analyses),
        [(str(analysis.model.path), analysis.facts) for analysis in analyses],
        {section: [column[section] for column in columns] for section in columns[0]},
    )
    (folder / "index.html").write_text(html, encoding="utf-8")


def draw(analysis: Analysis, limit: float, folder: Path, prefix: str) -> dict[str, list[Item]]:
    """The pictures and tables of one model by the page's sections; pictures are files, too."""
    scores = analysis.scores

    def picture(name: str, figure: Figure, caption: str) -> Item:
        png = figures.png(figure)
        (folder / f"{prefix}{name}.png").write_bytes(png)
        return Item(caption, f"data:image/png;base64,{b64encode(png).decode()}")

    def by_place(
        name: str, figure: Callable[..., Figure], scores: Sequence[PositionScore]
    ) -> list[Item]:
        return [
            picture(f"{name}-{place}".replace("'", "").replace(" ", "-"), figure([*group]), place)
            for place, group in groupby(scores, lambda score: score.place)
        ]

    heat_maps = partial(figures.heat_maps, limit=limit)
    with_offsets = [score for score in scores.positions if score.has_offsets]
    heads = Item("all heads with a position score", rows=analysis.heads)
    return {
        "positions": by_place("positions", heat_maps, scores.positions),
        "offsets": by_place("offsets", figures.offset_curves, with_offsets),
        "heads": [heads] if heads.rows else [],
        "segments": by_place("segments", heat_maps, scores.segments),
        "ranks": [
            picture("ranks", figures.spectra(scores), f"text: {analysis.source}"),
            Item("attention logits, mean over heads", rows=tables.logits_by_layer(scores)),
        ],
        "cosines": [
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
    sections: dict[str, list[list[Item]]],
) -> str:
    """The page as HTML, with all text escaped.

    Args:
        models: name and facts of each model
        sections: the items of each model, by section
    """
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
    environment.filters["cell"] = _format_cell
    return environment.get_template("page.html").render(
        title=title,
        models=models,
        sections=sections,
        versions=f"diet_fairseq {__version__}, PyTorch {torch.__version__}",
    )


def _format_cell(value: Any) -> str:
    """The text of a table's cell; empty for None and undefined values."""
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value) if isinstance(value, str | int) else ""
