"""Quality by input length, including inputs longer than in training: table and picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import figures, tables

CSV, PNG = "lengths.csv", "lengths.png"


@dataclass(frozen=True)
class Curve:
    """The quality of one checkpoint by length.

    Attributes:
        scheme: position schemes of its stacks
        limit: the largest number of tokens that the model can read
        points: length in tokens, such as "128" or "11-20" -> scores; {} beyond ``limit``
        trained_at: the longest input in training, in tokens; None if unknown
    """

    name: str
    scheme: str
    limit: int
    points: dict[str, dict[str, Any]]
    trained_at: int | None = None


def render_markdown(curves: Sequence[Curve]) -> str:
    """A Markdown table: a row for each checkpoint, a column for each length."""
    header = ["checkpoint", "positions", *curves[0].points]
    lines = [header, ["---"] * len(header)]
    lines += [
        [curve.name, curve.scheme, *map(_format_scores, curve.points.values())] for curve in curves
    ]
    notes = [
        f"\n{curve.name} stops at {curve.limit:,} positions: --finetune-from-model lengthens it "
        "(docs/look.md)"
        for curve in curves
        if not all(curve.points.values())
    ]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), *notes])


def _format_scores(scores: Mapping[str, Any]) -> str:
    """Loss and accuracy, or BLEU and chrF, as text."""
    if not scores:
        return "stops"
    if "loss" in scores:
        return f"{scores['loss']:.3f} ({scores['accuracy']:.1%})"
    return f"{scores['BLEU']:.1f} / {scores['chrF']:.1f}"


def draw_curves(curves: Sequence[Curve], metrics: Mapping[str, str]) -> figures.Figure:
    """A line for each checkpoint, and a vertical line at its length in training.

    Args:
        metrics: name of a score -> label of its vertical axis; each score has a panel
    """
    figure, axes = figures.create_panels(10, 3.6, len(metrics))
    for panel, (metric, label) in zip(axes, metrics.items(), strict=True):
        for number, curve in enumerate(curves):
            points = {
                int(length.rpartition("-")[2]): scores[metric]
                for length, scores in curve.points.items()
                if scores
            }
            colour = f"C{number % 10}"
            panel.plot(points.keys(), points.values(), color=colour, marker="o", markersize=3,
                       linewidth=1.2, label=curve.name)  # fmt: skip
            if curve.trained_at is not None:
                panel.axvline(curve.trained_at, color=colour, linewidth=0.8, linestyle="--")
        panel.set_ylabel(label)
        panel.set_xlabel("input length in tokens (dashed: longest in training)")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:.0f}")
    lines, labels = axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", fontsize=7, frameon=False, ncols=2)
    return figure


def write_curves(curves: Sequence[Curve], metrics: Mapping[str, str], folder: Path) -> None:
    """Write the table, with a row for each checkpoint and length, and the picture."""
    rows: list[tables.Row] = []
    for curve in curves:
        row = {"checkpoint": curve.name, "positions": curve.scheme, "trained at": curve.trained_at}
        rows += [row | {"length": length} | scores for length, scores in curve.points.items()]
    tables.write_csv(folder / CSV, rows)
    with figures.figure_style():
        (folder / PNG).write_bytes(figures.render_png(draw_curves(curves, metrics)))
