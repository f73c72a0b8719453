"""A page of pictures and tables in one file, which needs nothing else: no network, no folder."""

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
        frames: pictures to move through, the last is seen first
        rows: of a table, by column
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
    """A heading, what is to be seen under it, and for each model the items."""

    title: str
    text: str
    cells: list[list[Item]]


@dataclass(frozen=True)
class Described:
    """A model at the top of the page."""

    name: str
    facts: dict[str, Any]


def inline(png: bytes) -> str:
    return "data:image/png;base64," + b64encode(png).decode()


def render(
    title: str, introduction: str, models: list[Described], sections: list[Section], footer: str
) -> str:
    """The page as HTML; all that comes from a checkpoint is escaped."""
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["shown"] = shown
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=title, introduction=introduction, models=models, sections=sections, footer=footer
    )


def shown(value: Any) -> str:
    """A cell's value; nothing where there is none."""
    if isinstance(value, float):
        return f"{value:.2f}"
    return "" if value is None or not isinstance(value, (str, int)) else str(value)
