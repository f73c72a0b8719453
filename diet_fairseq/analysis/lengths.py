"""Quality by length of the input, beyond that of training: table and picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import figures, tables

CSV, PNG = "lengths.csv", "lengths.png"


@dataclass(frozen=True)
class Point:
    """The scores of one length, or of one part of its windows.

    Attributes:
        length: tokens of the window, or of the longest source of the bin
        first, last: places in the window, or the bin's bounds, both counted from 1
        number: number of masked tokens, or of sentences
        values: scores by name; empty if the model can't read so many tokens
    """

    length: int
    first: int
    last: int
    number: int
    values: dict[str, float]

    @property
    def span(self) -> str:
        return f"{self.first}-{self.last}"

    @property
    def cell(self) -> str:
        """The table's cell: the loss with the accuracy, or BLEU and chrF."""
        if not self.values:
            return "stops"  # the model can't read so many tokens
        if "loss" in self.values:
            return f"{self.values['loss']:.3f} ({self.values['accuracy']:.1%})"
        return f"{self.values['BLEU']:.1f} / {self.values['chrF']:.1f}"


@dataclass(frozen=True)
class Curve:
    """The quality of one checkpoint by length.

    Attributes:
        scheme: position schemes of its stacks
        trained_at: the longest input in training, in tokens; None if unknown
        limit: the number of tokens that the model can read
        flag: options that set the limit
        points: a point for each length
        places: a point for each part of the windows of each length (encoders)
        signatures: sacreBLEU's signatures by the name of the score
    """

    name: str
    scheme: str
    trained_at: int | None
    limit: int
    flag: str
    points: list[Point]
    places: list[Point] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)

    def places_in(self, length: int) -> list[Point]:
        """The parts of windows of one length."""
        return [point for point in self.places if point.length == length]


def names(paths: Sequence[Path]) -> list[str]:
    """Names of checkpoints: of their folders, or paths where folders have the same name."""
    folders = [path.name if path.is_dir() else path.absolute().parent.name for path in paths]
    pairs = zip(folders, paths, strict=True)
    return [folder if folders.count(folder) == 1 else str(path) for folder, path in pairs]


def rows(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """The rows of the CSV file, one for each point of each checkpoint."""
    unit = "masked tokens" if curves[0].places else "sentences"
    return [
        {
            "checkpoint": curve.name,
            "positions": curve.scheme,
            "trained at": curve.trained_at,
            "length": point.length,
            "first": point.first,
            "last": point.last,
            unit: point.number,
        }
        | point.values
        for curve in curves
        for point in [*curve.points, *curve.places]
    ]


def markdown(curves: Sequence[Curve]) -> str:
    """Markdown tables: a row for each checkpoint, a column for each length."""
    has_windows = bool(curves[0].places)
    spans = [str(point.length) if has_windows else point.span for point in curves[0].points]
    parts = [_table(curves, [curve.points for curve in curves], spans)]
    readable = [{point.length for point in curve.points if point.values} for curve in curves]
    common = set.intersection(*readable)
    if has_windows and common:
        longest = max(common)
        parts.append(f"By place in windows of {longest}, the longest that all checkpoints read:")
        places = [curve.places_in(longest) for curve in curves]
        parts.append(_table(curves, places, [point.span for point in places[0]]))
    parts += [
        f"{curve.name} stops at {curve.limit:,} positions: {curve.flag} with "
        "--finetune-from-model lengthens it"
        for curve in curves
        if not all(point.values for point in curve.points)
    ]
    signatures = next((curve.signatures for curve in curves if curve.signatures), {})
    parts += [f"{name}: `{text}`" for name, text in signatures.items()]
    return "\n\n".join(parts)


def _table(curves: Sequence[Curve], points: Sequence[Sequence[Point]], spans: list[str]) -> str:
    header = ["checkpoint", "positions", "trained at", *spans]
    lines = [header, ["---"] * len(header)]
    for curve, row in zip(curves, points, strict=True):
        trained_at = "" if curve.trained_at is None else f"{curve.trained_at:,}"
        lines.append([curve.name, curve.scheme, trained_at, *(point.cell for point in row)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def picture(curves: Sequence[Curve]) -> figures.Figure:
    """A line for each checkpoint, and a vertical line at its length in training."""
    has_windows = bool(curves[0].places)
    if has_windows:
        panels = [("loss", "tokens of the window"), ("loss", "place in the longest window")]
    else:
        panels = [(name, "tokens of the source, at most") for name in ("BLEU", "chrF")]
    figure, axes = figures.row_of_axes(10, 3.6, 2)
    for panel, (name, label) in zip(axes, panels, strict=True):
        for number, curve in enumerate(curves):
            points = [point for point in curve.points if point.values]
            if has_windows and panel is axes[1]:
                points = curve.places_in(max((point.length for point in points), default=0))
            colour = f"C{number % 10}"
            panel.plot([point.last for point in points], [point.values[name] for point in points],
                       color=colour, marker="o", markersize=3, linewidth=1.2,
                       label=curve.name)  # fmt: skip
            if curve.trained_at is not None:
                panel.axvline(curve.trained_at, color=colour, linewidth=0.8, linestyle="--")
        panel.set_ylabel("loss of masked tokens, nats" if name == "loss" else name)
        panel.set_xlabel(f"{label} (dashed: longest in training)")
        if has_windows:
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_formatter("{x:.0f}")
    lines, labels = axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside right upper", fontsize=7, frameon=False)
    return figure


def write(curves: Sequence[Curve], folder: Path) -> None:
    """Write the table and the picture."""
    tables.write_csv(folder / CSV, rows(curves))
    with figures.style():
        (folder / PNG).write_bytes(figures.png(picture(curves)))
