"""Quality by length of the input, beyond that of training: table and picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..atomic import atomic_file
from . import figures, tables

CSV, PNG = "lengths.csv", "lengths.png"
#: a cell of lengths that the model can't read
STOPS = "stops"


@dataclass(frozen=True)
class Point:
    """The scores of one length, or of one part of its windows.

    Attributes:
        length: tokens of the window, or of the longest source of the bin
        first, last: places in the window, or the bin's bounds, both counted from 1
        number: number of masked tokens, or of sentences
        values: scores by name; empty where the model can't read so many tokens
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
        name: name of the checkpoint
        scheme: position schemes of its stacks
        trained_at: the longest input in training, in tokens; None if unknown
        limit: the number of tokens that the model can read
        flag: options that set the limit
        whole: a point for each length
        places: a point for each part of the windows of each length (encoders)
        signatures: sacreBLEU's signatures by the name of the score
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
        """One line about a model that can't read all lengths; empty if it can."""
        if all(point.values for point in self.whole):
            return ""
        return (
            f"{self.name} stops at {self.limit:,} positions: {self.flag} with "
            "--finetune-from-model lengthens it"
        )


def names(paths: Sequence[Path]) -> list[str]:
    """Names of checkpoints: their folders', or their paths where folders' names are alike."""
    folders = [path.name if path.is_dir() else path.absolute().parent.name for path in paths]
    return [
        folder if folders.count(folder) == 1 else str(path)
        for folder, path in zip(folders, paths, strict=True)
    ]


def rows(readings: Sequence[Reading]) -> list[dict[str, Any]]:
    """The CSV file's rows, one for each point of each checkpoint."""
    unit = "masked tokens" if readings[0].places else "sentences"
    return [
        {
            "checkpoint": reading.name,
            "positions": reading.scheme,
            "trained at": reading.trained_at,
            "length": point.length,
            "first": point.first,
            "last": point.last,
            unit: point.number,
        }
        | point.values
        for reading in readings
        for point in [*reading.whole, *reading.places]
    ]


def markdown(readings: Sequence[Reading]) -> str:
    """Markdown tables: a line for each checkpoint, a column for each length."""
    has_windows = bool(readings[0].places)
    whole = [reading.whole for reading in readings]
    columns = [str(point.length) if has_windows else point.span for point in whole[0]]
    parts = [_table(readings, whole, columns)]
    if has_windows:
        parts += _places(readings)
    parts += [reading.stops for reading in readings if reading.stops]
    signatures = next((reading.signatures for reading in readings if reading.signatures), {})
    parts += [f"{name}: `{text}`" for name, text in signatures.items()]
    return "\n\n".join(parts)


def _places(readings: Sequence[Reading]) -> list[str]:
    """The heading and table of places in the longest window that all models can read, if any."""
    common = set.intersection(
        *({point.length for point in reading.whole if point.values} for reading in readings)
    )
    if not common:
        return []
    longest = max(common)
    points = [
        [point for point in reading.places if point.length == longest] for reading in readings
    ]
    heading = f"By place in windows of {longest}, the longest that all of them read:"
    return [heading, _table(readings, points, [point.span for point in points[0]])]


def _table(
    readings: Sequence[Reading], points: Sequence[Sequence[Point]], columns: list[str]
) -> str:
    """Cells are "loss (accuracy)" or "BLEU / chrF"."""
    header = ["checkpoint", "positions", "trained at", *columns]
    lines = [header, ["---"] * len(header)]
    for reading, row in zip(readings, points, strict=True):
        trained_at = "" if reading.trained_at is None else f"{reading.trained_at:,}"
        lines.append([reading.name, reading.scheme, trained_at, *(cell(point) for point in row)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(point: Point) -> str:
    values = point.values
    if not values:
        return STOPS
    if "loss" in values:
        return f"{values['loss']:.3f} ({values['accuracy']:.1%})"
    return f"{values['BLEU']:.1f} / {values['chrF']:.1f}"


def picture(readings: Sequence[Reading]) -> figures.Figure:
    """A line for each checkpoint, and a vertical line at its length in training."""
    has_windows = bool(readings[0].places)
    panels = [("BLEU", "whole"), ("chrF", "whole")]
    if has_windows:
        panels = [("loss", "whole"), ("loss", "places")]
    figure, axes = figures.row_of_axes(10, 3.6, 2)
    for panel, (name, where) in zip(axes, panels, strict=True):
        for number, reading in enumerate(readings):
            points = [point for point in getattr(reading, where) if point.values]
            if where == "places":
                longest = max((point.length for point in points), default=0)
                points = [point for point in points if point.length == longest]
            colour = f"C{number % 10}"
            x = [point.last for point in points]
            panel.plot(x, [point.values[name] for point in points], color=colour,
                       marker="o", markersize=3, linewidth=1.2, label=reading.name)  # fmt: skip
            if reading.trained_at is not None:
                panel.axvline(reading.trained_at, color=colour, linewidth=0.8, linestyle="--")
        panel.set_ylabel("loss of masked tokens, nats" if name == "loss" else name)
        panel.set_xlabel(X_LABELS[has_windows, where])
        if has_windows:
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
    """Write the table and the picture."""
    tables.write_csv(folder / CSV, rows(readings))
    with figures.style():
        png = figures.png(picture(readings))
    with atomic_file(folder / PNG, "wb") as image:
        image.write(png)
