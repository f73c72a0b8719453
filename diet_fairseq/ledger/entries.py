"""The rows of `rows.toml`, with what the papers print, what ours came to, and what they cost."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..recipes.common.options import by_name
from ..recipes.encoders.papers import read_papers
from . import results as finished
from .cost import Cost, pretraining, translation

ROWS = Path(__file__).with_name("rows.toml")


@dataclass(frozen=True)
class Entry:
    """A row of a table, or a figure.

    Attributes:
        row: its name
        commands: what runs it; a command that serves a whole table stands with each of its rows
        paper: the papers' numbers, by column; empty where they are not given
        ours: what came out, in words
        where: in docs/, the page that says so
        seeds: of ``ours``
        cost: at full size; None where it is no training
        note: what is particular about it
        fields: those that tell the row in paper_tables.json
    """

    row: str
    commands: list[str]
    paper: dict[str, float]
    ours: str
    where: str
    seeds: str
    cost: Cost | None
    note: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of a paper; ``key`` is its name in paper_tables.json, "" where it has none."""

    key: str
    title: str
    remark: str
    entries: list[Entry]


def tables(papers: Path | None = None, results: Sequence[Path] = ()) -> list[Table]:
    """All of them.

    Args:
        papers: paper_tables.json
        results: recipes' folders, whose finished fine-tunings and translations are counted
    """
    printed = read_papers(papers) if papers else {}
    found = finished.of_folders(results)
    content = tomllib.loads(ROWS.read_text(encoding="utf-8"))
    return [
        table(one, printed.get(one["key"], []), found.get(benchmark(one), {}))
        for one in content["table"]
    ]


def benchmark(one: dict[str, Any]) -> str:
    """What the rows of a table are scored by, as in `results`; "none" if that is no benchmark."""
    if one["kind"] == "encoder":
        paper, *_ = one["key"].split("_")
        return "xtreme" if "xtreme" in one["key"] else f"glue, {paper}"
    return str(one["kind"])


def table(one: dict[str, Any], printed: list[dict[str, Any]], found: finished.Found) -> Table:
    entries = []
    for row in one["rows"]:
        fields = row.get("paper", {})
        fitting = [numbers(candidate, one) for candidate in printed if fits(candidate, fields)]
        paper = fitting[0] if fitting else {}
        ours, seeds = row.get("ran", ""), ""
        if row["row"] in found:
            ours, seeds = found[row["row"]]
        entry = Entry(
            row=row["row"],
            commands=commands_of(one, row),
            paper=paper,
            ours=ours,
            where=row.get("where", ""),
            seeds=seeds,
            cost=cost_of(one, row),
            note=row.get("note", ""),
            fields=fields,
        )
        entries.append(entry)
    return Table(one["key"], one["title"], one.get("remark", ""), entries)


def commands_of(one: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """The commands, with the row's options and names in them."""
    run = re.sub(r"\W+", "-", row["row"])
    values = {"options": row.get("options", ""), "run": run, "row": row["row"]}
    return [command.format(**values) for command in row.get("commands", one["commands"])]


def cost_of(one: dict[str, Any], row: dict[str, Any]) -> Cost | None:
    """What one run of the row, or one for each language pair, costs at full size."""
    if one["kind"] == "none":
        return None
    options = by_name(row["options"].split())
    scheme = options[""]
    if one["kind"] == "translation":
        return translation(scheme, one["vocabulary"]).times(one.get("runs", 1))
    keys = options.get("--projection-length")
    return pretraining(
        row.get("preset", one["preset"]),
        scheme,
        one["vocabulary"],
        options.get("--encoder", "bert"),
        int(keys) if keys else None,
        one.get("changes", {}) | row.get("changes", {}),
    )


def fits(row: dict[str, Any], fields: dict[str, Any]) -> bool:
    """Whether a printed row is meant; no sharing is "none"."""
    if not fields:
        return False
    row = row | {"sharing": row.get("sharing") or "none"}
    return all(row.get(name) == value for name, value in fields.items())


def numbers(row: dict[str, Any], one: dict[str, Any]) -> dict[str, float]:
    """The printed numbers that are shown."""
    columns = one.get("columns", [one.get("measure")])
    for name in columns:
        if name not in row["scores"]:
            raise UserError(
                f"--papers: a row of {one['key']} has no number {name}, but "
                f"{', '.join(row['scores'])}: correct the file"
            )
    return {name: row["scores"][name] for name in columns}
