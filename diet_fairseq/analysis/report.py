"""The report on one or two models: the page, its pictures and its tables."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from ..atomic import atomic_file
from ..version import __version__
from . import figures, tables
from .loaded_model import Batch, LoadedModel
from .page import Item, ModelFacts, Section, data_url, render
from .scores import ModelScores, Scores

INTRODUCTION = (
    "What this model's attention has learned about positions. A score is what is added before "
    "softmax, in nats: one nat more is 2.7 times the weight. Softmax is blind to a number added to "
    "a whole row, so pictures show scores less the mean of their row."
)
POSITIONS = (
    "What positions add to the score of every head, with the term of words left out (DIET, figures "
    "4, 6 and 7): queries downward, keys to the right, red where a query is drawn to a key, on one "
    "scale. A band along the diagonal is a score of the offset; a column at the left "
    "is the first token. Positions at the input are projected by layer 1's W_Q and W_K; deeper "
    "layers see them mixed with words."
)
OFFSETS = "The mean score along each diagonal: offset -1 is the token before the query."
SEGMENTS = (
    "Positions and segments together, where the second half of the window is a second segment "
    "(DIET, figure 6)."
)
HEADS = (
    "How far a head looks by positions alone: the mean distance in tokens and the entropy of the "
    "weights that its scores would give, in nats; the share of its variance within rows that is "
    "explained by the offset (1: it is Toeplitz) and by the first token. A head is named by the "
    "first token, or an offset, that gets much of its weight; it is local where it looks clearly "
    "less far than equal weights do."
)
RANKS = (
    "Singular values, as shares of the largest: of the scores of positions (DIET, figure 8) and of "
    "whole scores, of words and positions, on the text (figure 2). Dashed: the largest rank that "
    "is possible. With positions at the input it is the head's width d_h; a score of rank d_p in "
    "the head makes it d_h + d_p (DIET, theorem 1). A score of offsets has no such limit."
)
COSINES = (
    "The cosine similarity of position embeddings at the input (DIET, figure 5). Where all pairs "
    "are alike the embeddings say nothing of positions."
)
GROWTH = "The scores of offsets at every checkpoint of the run, on one scale."


@dataclass(frozen=True)
class Analysis:
    """A model, the batch that it read, and its scores."""

    model: LoadedModel
    batch: Batch
    scores: ModelScores

    @cached_property
    def heads(self) -> list[tables.Row]:
        return tables.heads(self.scores)

    @property
    def facts(self) -> dict[str, str]:
        model, numbers, tokens = self.model, self.model.numbers, self.batch.tokens
        positions = numbers["of positions"]
        return {
            "architecture": model.arch,
            "positions": model.scheme,
            "size": model.sizes,
            "parameters": f"{numbers['parameters']:,}, {positions:,} of them positions'",
            "updates": f"{model.updates:,}",
            "read": f"{len(tokens)} windows of {tokens.size(1)} tokens: {self.batch.source}",
        }


class Report:
    """Writes the page, and the pictures and tables behind it, to a folder."""

    def __init__(self, analyses: Sequence[Analysis], folder: Path) -> None:
        self.analyses, self.folder = list(analyses), folder
        self.colour_limit = figures.colour_limit([analysis.scores for analysis in analyses])

    def prefix(self, number: int) -> str:
        return f"{number + 1}-" if len(self.analyses) > 1 else ""

    def picture(self, name: str, figure: figures.Figure, caption: str) -> Item:
        """A picture of the page, which is also a file."""
        png = figures.png(figure)
        with atomic_file(self.folder / f"{name}.png", "wb") as file:
            file.write(png)
        return Item(caption, data_url(png))

    def cells(self, items_of: Callable[[int, Analysis], list[Item]]) -> list[list[Item]]:
        return [items_of(number, analysis) for number, analysis in enumerate(self.analyses)]

    def pictures(
        self, name: str, draw: Callable[[list[Scores]], figures.Figure], scores: list[Scores]
    ) -> list[Item]:
        """A picture for each place."""
        return [
            self.picture(
                f"{name}-{place.replace(chr(39), '').replace(' ', '-')}", draw(group), place
            )
            for place, group in figures.by_place(scores)
        ]

    def heat_maps(self, items: list[Scores]) -> figures.Figure:
        return figures.heat_maps(items, self.colour_limit)

    def positions(self, number: int, analysis: Analysis) -> list[Item]:
        name = f"{self.prefix(number)}positions"
        return self.pictures(name, self.heat_maps, analysis.scores.positions)

    def segments(self, number: int, analysis: Analysis) -> list[Item]:
        name = f"{self.prefix(number)}segments"
        return self.pictures(name, self.heat_maps, analysis.scores.segments)

    def offsets(self, number: int, analysis: Analysis) -> list[Item]:
        square = [scores for scores in analysis.scores.positions if scores.square]
        return self.pictures(f"{self.prefix(number)}offsets", figures.curves, square)

    def ranks(self, number: int, analysis: Analysis) -> list[Item]:
        figure = figures.spectra(analysis.scores)
        picture = self.picture(f"{self.prefix(number)}ranks", figure, analysis.batch.source)
        return [picture, Item("Whole scores", rows=by_layer(tables.whole(analysis.scores)))]

    def cosines(self, number: int, analysis: Analysis) -> list[Item]:
        return [
            self.picture(
                f"{self.prefix(number)}cosines-{stack}",
                figures.cosines(embeddings),
                f"{stack}; the median of all pairs is {tables.median_cosine(embeddings):.2f}",
            )
            for stack, embeddings in analysis.scores.input.items()
        ]

    def growth(self, number: int, run: Sequence[Analysis]) -> list[Item]:
        """The curves of a run's checkpoints, oldest first."""
        frames = [
            [item for item in analysis.scores.positions if item.square and item.place == "encoder"]
            for analysis in run
        ]
        if len(run) < 2 or not all(frames):
            return []
        limits = figures.curve_limits(frames)
        pictures = [
            self.picture(
                f"{self.prefix(number)}frame-{place}",
                figures.curves(frame, limits),
                f"{analysis.model.updates} updates ({analysis.model.path.name})",
            )
            for place, (analysis, frame) in enumerate(zip(run, frames, strict=True))
        ]
        return [Item("checkpoint", frames=pictures)]

    def write(self, runs: Sequence[Sequence[Analysis]] = ()) -> None:
        """Write all files, the page last; ``runs`` are the checkpoints of each model's run."""
        with figures.style():
            sections = [
                Section("Scores of positions", POSITIONS, self.cells(self.positions)),
                Section("Scores of offsets", OFFSETS, self.cells(self.offsets)),
                Section("What heads look at", HEADS, self.cells(head_table)),
                Section("Two segments", SEGMENTS, self.cells(self.segments)),
                Section("Ranks", RANKS, self.cells(self.ranks)),
                Section("Positions at the input", COSINES, self.cells(self.cosines)),
            ]
            if runs:
                growth = [self.growth(number, run) for number, run in enumerate(runs)]
                sections.insert(2, Section("How they grew", GROWTH, growth))
        for number, analysis in enumerate(self.analyses):
            tables.write_all(analysis.scores, analysis.heads, self.folder, self.prefix(number))
        facts = {str(analysis.model.path): analysis.facts for analysis in self.analyses}
        html = render(
            " and ".join(analysis.model.path.name for analysis in self.analyses),
            INTRODUCTION,
            [ModelFacts(str(analysis.model.path), analysis.facts) for analysis in self.analyses],
            [section for section in sections if any(section.cells)],
            f"diet_fairseq {__version__}, PyTorch {torch.__version__}. The numbers are in the CSV "
            "files beside this page.",
        )
        with atomic_file(self.folder / "look.json") as file:
            json.dump(facts, file, indent=1)
        with atomic_file(self.folder / "index.html") as file:
            file.write(html)


def head_table(_: int, analysis: Analysis) -> list[Item]:
    return [Item("Heads", rows=analysis.heads)] if analysis.heads else []


def by_layer(rows: list[tables.Row]) -> list[tables.Row]:
    """Means over the heads of each layer."""
    layers: dict[tuple[str, int], list[tables.Row]] = {}
    for row in rows:
        layers.setdefault((row["place"], row["layer"]), []).append(row)
    numbers = ("distance", "entropy", "rank", "effective rank")
    return [
        {"place": place, "layer": layer, "rank at most": heads[0]["rank at most"]}
        | {
            name: sum(row[name] for row in heads) / len(heads)
            for name in numbers
            if heads[0][name] is not None
        }
        for (place, layer), heads in layers.items()
    ]
