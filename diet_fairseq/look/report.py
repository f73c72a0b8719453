"""Report on models side by side: a self-contained HTML page, pictures (PNG) and tables (CSV)."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import jinja2
import torch
from matplotlib.figure import Figure

from ..transformer.stack import Stack
from ..translate.loading import LoadedModel
from ..translate.model_json import dictionary_paths
from ..version import __version__
from . import figures, tables
from .plateau import can_show_plateau, describe_plateau, word_entropy
from .scores import ModelScores, PositionScore


@dataclass(frozen=True)
class Analysis:
    """A model, a description of the text that it read, and its scores."""

    model: LoadedModel
    text: str
    scores: ModelScores


@dataclass(frozen=True)
class Item:
    """A picture or a table, with its caption.

    Attributes:
        picture: a PNG as a data: address
        rows: a table's rows: column -> value
    """

    caption: str
    picture: str = ""
    rows: list[tables.Row] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for row in self.rows for column in row))


def write_report(analyses: Sequence[Analysis], folder: Path) -> None:
    """Write the page, the pictures and the tables."""
    limit = figures.colour_limit([analysis.scores for analysis in analyses])
    columns = []
    for number, analysis in enumerate(analyses, 1):
        prefix = f"{number}-" if len(analyses) > 1 else ""
        with figures.figure_style():
            columns.append(draw_sections(analysis, limit, folder, prefix))
    html = render_page(
        [(str(analysis.model.path), list_facts(analysis)) for analysis in analyses],
        {section: [column[section] for column in columns] for section in columns[0]},
    )
    (folder / "index.html").write_text(html, encoding="utf-8")


def list_facts(analysis: Analysis) -> dict[str, str]:
    """The facts about a model and its text at the top of the page."""
    model = analysis.model
    parameters = sum(parameter.numel() for parameter in model.model.parameters())
    facts = {
        "architecture": getattr(model.config.model, "arch", None) or "not named",
        "positions": model.scheme,
        "parameters": f"{parameters:,}",
        "updates": f"{model.updates:,}",
        "text": analysis.text,
    }
    if model.held_out_loss is not None:
        facts["held-out loss"] = f"{model.held_out_loss:.2f} nats"
    if warning := find_plateau(model):
        facts["warning"] = warning
    return facts


def find_plateau(model: LoadedModel) -> str:
    """The warning of `describe_plateau` about the checkpoint's held-out loss, or ""."""
    if model.held_out_loss is None:
        return ""
    updates = int(model.config.optimization.max_update)
    entropy = word_entropy(dictionary_paths(model.description)[0])
    if entropy is None or not can_show_plateau(model.updates, updates):
        return ""
    stack = model.stacks["encoder"]
    positions = vars(stack.stack_config.positions) if isinstance(stack, Stack) else {}
    options = {name.removeprefix("position_"): value for name, value in positions.items()}
    return describe_plateau(model.held_out_loss, entropy, model.updates, updates, options)


def draw_sections(
    analysis: Analysis, limit: float, folder: Path, prefix: str
) -> dict[str, list[Item]]:
    """Write one model's pictures and tables, and return them by section of the page."""
    scores = analysis.scores
    rows = {
        "heads": tables.head_rows(scores),
        "text": list(tables.logit_rows(scores)),
        "offsets": list(tables.offset_rows(scores)),
        "scores": list(tables.matrix_rows(scores)),
    }
    for name, table in rows.items():
        tables.write_csv(folder / f"{prefix}{name}.csv", table)

    def picture(name: str, figure: Figure, caption: str) -> Item:
        png = figures.render_png(figure)
        (folder / f"{prefix}{name}.png").write_bytes(png)
        return Item(caption, f"data:image/png;base64,{b64encode(png).decode()}")

    def by_place(
        name: str, figure: Callable[..., Figure], scores: Sequence[PositionScore]
    ) -> list[Item]:
        groups: dict[str, list[PositionScore]] = {}
        for score in scores:
            groups.setdefault(score.place, []).append(score)
        return [
            picture(f"{name}-{place}".replace("'", "").replace(" ", "-"), figure(group), place)
            for place, group in groups.items()
        ]

    heat_maps = partial(figures.draw_heat_maps, limit=limit)
    with_offsets = [score for score in scores.positions if score.has_offsets]
    heads = Item("all heads with a position score", rows=rows["heads"])
    return {
        "positions": by_place("positions", heat_maps, scores.positions),
        "offsets": by_place("offsets", figures.draw_offset_curves, with_offsets),
        "heads": [heads] if heads.rows else [],
        "segments": by_place("segments", heat_maps, scores.segments),
        "ranks": [
            picture("ranks", figures.draw_spectra(scores), f"text: {analysis.text}"),
            Item("attention logits", rows=rows["text"]),
        ],
        "cosines": [
            picture(f"cosines-{stack}", figures.draw_cosines(embeddings), stack)
            for stack, embeddings in scores.embeddings.items()
        ],
    }


def render_page(
    models: Sequence[tuple[str, dict[str, str]]], sections: dict[str, list[list[Item]]]
) -> str:
    """The page as HTML, with all text escaped.

    Args:
        models: name and facts of each model
        sections: the items of each model, by section
    """
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
    return environment.get_template("page.html").render(
        models=models,
        sections=sections,
        versions=f"diet_fairseq {__version__}, PyTorch {torch.__version__}",
    )
