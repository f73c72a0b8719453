"""The page of one or two models, and the files behind it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from ..atomic import written
from ..version import __version__
from . import figures, tables
from .loaded_model import Batch, Trained
from .page import Described, Item, Section, inline, render
from .scores import Found, Scores

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
class Seen:
    """A model, what it read, and what was found in it."""

    model: Trained
    batch: Batch
    found: Found

    @cached_property
    def heads(self) -> list[tables.Row]:
        """What each of its heads looks at."""
        return tables.heads(self.found)


class Report:
    """Collects the pictures of a page in a folder."""

    def __init__(self, seen: Sequence[Seen], folder: Path) -> None:
        self.seen, self.folder = list(seen), folder
        self.largest = figures.scale([one.found for one in seen])

    def prefix(self, number: int) -> str:
        return f"{number + 1}-" if len(self.seen) > 1 else ""

    def picture(self, name: str, figure: figures.Figure, caption: str) -> Item:
        """A picture of the page, which is also a file."""
        png = figures.png(figure)
        with written(self.folder / f"{name}.png", "wb") as file:
            file.write(png)
        return Item(caption, inline(png))

    def cells(self, of: Callable[[int, Seen], list[Item]]) -> list[list[Item]]:
        return [of(number, one) for number, one in enumerate(self.seen)]

    def heat_maps(self, name: str, items: list[Scores], number: int) -> list[Item]:
        return [
            self.picture(
                f"{self.prefix(number)}{name}-{place.replace(chr(39), '').replace(' ', '-')}",
                figures.heat_maps(group, self.largest),
                place,
            )
            for place, group in figures.by_place(items)
        ]

    def positions(self, number: int, one: Seen) -> list[Item]:
        return self.heat_maps("positions", one.found.positions, number)

    def segments(self, number: int, one: Seen) -> list[Item]:
        return self.heat_maps("segments", one.found.segments, number)

    def offsets(self, number: int, one: Seen) -> list[Item]:
        square = [scores for scores in one.found.positions if scores.square]
        return [
            self.picture(
                f"{self.prefix(number)}offsets-{place.replace(chr(39), '').replace(' ', '-')}",
                figures.curves(group),
                place,
            )
            for place, group in figures.by_place(square)
        ]

    def ranks(self, number: int, one: Seen) -> list[Item]:
        figure = figures.spectra(one.found)
        items = [self.picture(f"{self.prefix(number)}ranks", figure, one.batch.source)]
        return [*items, Item("Whole scores", rows=by_layer(tables.whole(one.found)))]

    def cosines(self, number: int, one: Seen) -> list[Item]:
        return [
            self.picture(
                f"{self.prefix(number)}cosines-{name}",
                figures.cosines(rows),
                f"{name}; the median of all pairs is {tables.median_cosine(rows):.2f}",
            )
            for name, rows in one.found.input.items()
        ]

    def growth(self, number: int, frames: Sequence[Sequence[Seen]]) -> list[Item]:
        """The curves of a run's checkpoints, oldest first."""
        run = frames[number]
        lines = [
            [s for s in one.found.positions if s.square and s.place == "encoder"] for one in run
        ]
        if len(run) < 2 or not all(lines):
            return []
        limits = figures.limits_of(lines)
        pictures = [
            self.picture(
                f"{self.prefix(number)}frame-{place}",
                figures.curves(items, limits),
                f"{one.model.updates} updates ({one.model.path.name})",
            )
            for place, (one, items) in enumerate(zip(run, lines, strict=True))
        ]
        return [Item("checkpoint", frames=pictures)]

    def write(self, frames: Sequence[Sequence[Seen]] = ()) -> None:
        """All files, the page last."""
        with figures.style():
            sections = [
                Section("Scores of positions", POSITIONS, self.cells(self.positions)),
                Section("Scores of offsets", OFFSETS, self.cells(self.offsets)),
                Section("What heads look at", HEADS, self.cells(heads_of)),
                Section("Two segments", SEGMENTS, self.cells(self.segments)),
                Section("Ranks", RANKS, self.cells(self.ranks)),
                Section("Positions at the input", COSINES, self.cells(self.cosines)),
            ]
            if frames:
                grown = self.cells(lambda number, _: self.growth(number, frames))
                sections.insert(2, Section("How they grew", GROWTH, grown))
        for number, one in enumerate(self.seen):
            tables.write_all(one.found, one.heads, self.folder, self.prefix(number))
        html = render(
            " and ".join(one.model.path.name for one in self.seen),
            INTRODUCTION,
            [Described(str(one.model.path), facts(one)) for one in self.seen],
            [section for section in sections if any(section.cells)],
            f"diet_fairseq {__version__}, PyTorch {torch.__version__}. The numbers are in the CSV "
            "files beside this page.",
        )
        with written(self.folder / "look.json") as file:
            json.dump({str(one.model.path): facts(one) for one in self.seen}, file, indent=1)
        with written(self.folder / "index.html") as file:
            file.write(html)


def facts(one: Seen) -> dict[str, str]:
    """What the model is."""
    model, numbers = one.model, one.model.numbers
    return {
        "architecture": model.arch or "not named",
        "positions": model.scheme,
        "size": model.sizes,
        "parameters": f"{numbers['parameters']:,}, {numbers['of positions']:,} of them positions'",
        "updates": f"{model.updates:,}",
        "read": f"{len(one.batch.tokens)} windows of {one.batch.tokens.size(1)} tokens: "
        f"{one.batch.source}",
    }


def heads_of(_: int, one: Seen) -> list[Item]:
    return [Item("Heads", rows=one.heads)] if one.heads else []


def by_layer(rows: list[tables.Row]) -> list[tables.Row]:
    """Means over heads; all heads are in the file."""
    found: dict[tuple[str, int], list[tables.Row]] = {}
    for row in rows:
        found.setdefault((row["place"], row["layer"]), []).append(row)
    numbers = ("distance", "entropy", "rank", "effective rank")
    return [
        {"place": place, "layer": layer, "rank at most": some[0]["rank at most"]}
        | {
            name: sum(row[name] for row in some) / len(some)
            for name in numbers
            if some[0][name] is not None
        }
        for (place, layer), some in found.items()
    ]
