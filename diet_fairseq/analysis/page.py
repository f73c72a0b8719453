"""Self-contained HTML page of pictures and tables."""

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment

TEMPLATE = Path(__file__).with_name("page.html")


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


@dataclass(frozen=True)
class Section:
    """A heading, its text, and a cell of items for each model."""

    title: str
    text: str
    cells: list[list[Item]]


@dataclass(frozen=True)
class ModelFacts:
    """A model's entry at the top of the page."""

    name: str
    facts: dict[str, Any]


def data_url(png: bytes) -> str:
    return "data:image/png;base64," + b64encode(png).decode()


def render(
    title: str, introduction: str, models: list[ModelFacts], sections: list[Section], footer: str
) -> str:
    """The page as HTML, with all text escaped."""
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["cell"] = format_cell
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=title, introduction=introduction, models=models, sections=sections, footer=footer
    )


def format_cell(value: Any) -> str:
    """The text of a table's cell; empty for values that are neither numbers nor text."""
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value) if isinstance(value, str | int) else ""
