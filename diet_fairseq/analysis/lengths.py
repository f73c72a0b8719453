"""Quality by length of the input, beyond what a model was trained on: table and picture."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..atomic import written
from . import figures

#: the files behind what is printed
CSV, PNG = "lengths.csv", "lengths.png"
#: in a cell, where the model does not read so many tokens
STOPS = "stops"


@dataclass(frozen=True)
class Point:
    """What one length, or one part of it, came to.

    Attributes:
        length: tokens of the window, or the longest sources of the bin
        first, last: the places in the window that were counted, or the shortest and the longest
            sources, from 1 on
        number: of masked tokens, or of sentences
        values: by name; empty where the model does not read so many tokens
    """

    length: int
    first: int
    last: int
    number: int
    values: dict[str, float]

    @property
    def span(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True)
class Reading:
    """One checkpoint at all lengths.

    Attributes:
        name: of the checkpoint
        scheme: what acts where
        trained_at: the longest input in training, in tokens; None: nothing says it
        limit: the most tokens that the model reads
        flag: that sets the limit
        whole: a point for each length
        places: a point for each part of the windows of each length (encoders)
        signatures: of the values, by name
    """

    name: str
    scheme: str
    trained_at: int | None
    limit: int
    flag: str
    whole: list[Point]
    places: list[Point] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)

    @property
    def stops(self) -> str:
        """One line about a model that does not read all lengths; empty if it does."""
        if all(point.values for point in self.whole):
            return ""
        return (
            f"{self.name} stops at {self.limit:,} positions: {self.flag} with "
            "--finetune-from-model lengthens it"
        )


def names(paths: Sequence[Path]) -> list[str]:
    """What checkpoints are called: by their folders, or their paths where folders are alike."""
    folders = [path.name if path.is_dir() else path.absolute().parent.name for path in paths]
    return [
        folder if folders.count(folder) == 1 else str(path)
        for folder, path in zip(folders, paths, strict=True)
    ]


def rows(readings: Sequence[Reading]) -> list[dict[str, Any]]:
    """The table as it is written to the file: a row for each point of each checkpoint."""
    what = "masked tokens" if readings[0].places else "sentences"
    return [
        {
            "checkpoint": one.name,
            "positions": one.scheme,
            "trained at": one.trained_at,
            "length": point.length,
            "first": point.first,
            "last": point.last,
            what: point.number,
        }
        | {name: f"{value:.5g}" for name, value in point.values.items()}
        for one in readings
        for point in [*one.whole, *one.places]
    ]


def markdown(readings: Sequence[Reading]) -> str:
    """The tables that are printed: a line for each checkpoint, a column for each length."""
    windows = bool(readings[0].places)
    whole = [one.whole for one in readings]
    columns = [str(point.length) if windows else point.span for point in whole[0]]
    parts = [_table(readings, whole, columns)]
    if windows:
        parts += _places(readings)
    parts += [one.stops for one in readings if one.stops]
    signatures = next((one.signatures for one in readings if one.signatures), {})
    parts += [f"{name}: `{text}`" for name, text in signatures.items()]
    return "\n\n".join(parts)


def _places(readings: Sequence[Reading]) -> list[str]:
    """A heading, and the table of places; nothing if there is no window that all read."""
    read = set.intersection(
        *({point.length for point in one.whole if point.values} for one in readings)
    )
    if not read:
        return []
    longest = max(read)
    shown = [[point for point in one.places if point.length == longest] for one in readings]
    heading = f"By place in windows of {longest}, the longest that all of them read:"
    return [heading, _table(readings, shown, [point.span for point in shown[0]])]


def _table(
    readings: Sequence[Reading], points: Sequence[Sequence[Point]], columns: list[str]
) -> str:
    """Cells are "loss (accuracy)" or "BLEU / chrF"."""
    header = ["checkpoint", "positions", "trained at", *columns]
    lines = [header, ["---"] * len(header)]
    for one, mine in zip(readings, points, strict=True):
        at = "" if one.trained_at is None else f"{one.trained_at:,}"
        lines.append([one.name, one.scheme, at, *(cell(point) for point in mine)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(point: Point) -> str:
    values = point.values
    if not values:
        return STOPS
    if "loss" in values:
        return f"{values['loss']:.3f} ({values['accuracy']:.1%})"
    return f"{values['BLEU']:.1f} / {values['chrF']:.1f}"


def picture(readings: Sequence[Reading]) -> figures.Figure:
    """A line for each checkpoint, and a vertical one in its colour where its training ended."""
    windows = bool(readings[0].places)
    panels = [("loss", "whole"), ("loss", "places")] if windows else [("BLEU", "whole"),
                                                                     ("chrF", "whole")]  # fmt: skip
    figure, axes = figures.new(10, 3.6, 2)
    for panel, (name, where) in zip(axes, panels, strict=True):
        for number, one in enumerate(readings):
            points = [point for point in getattr(one, where) if point.values]
            if where == "places":
                longest = max((point.length for point in points), default=0)
                points = [point for point in points if point.length == longest]
            colour = f"C{number % 10}"
            at = [point.last for point in points]
            panel.plot(at, [point.values[name] for point in points], color=colour,
                       marker="o", markersize=3, linewidth=1.2, label=one.name)  # fmt: skip
            if one.trained_at is not None:
                panel.axvline(one.trained_at, color=colour, linewidth=0.8, linestyle="--")
        panel.set_ylabel("loss of masked tokens, nats" if name == "loss" else name)
        panel.set_xlabel(X_LABELS[windows, where])
        if windows:
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_formatter("{x:.0f}")
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside right upper", fontsize=7, frameon=False)
    return figure


X_LABELS = {
    (True, "whole"): "tokens of the window; dashed: in training",
    (True, "places"): "place in the longest window that is read, up to",
    (False, "whole"): "tokens of the source, up to; dashed: the longest in training",
}


def write(readings: Sequence[Reading], folder: Path) -> None:
    """Table and picture."""
    found = rows(readings)
    with written(folder / CSV) as file:
        writer = csv.DictWriter(
            file, list(dict.fromkeys(name for row in found for name in row)), lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(found)
    with figures.style():
        png = figures.png(picture(readings))
    with written(folder / PNG, "wb") as image:
        image.write(png)
