"""The ledger as Markdown, HTML and JSON."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from jinja2 import Environment

from .cost import BYTES, H100, UTILISATION, Cost
from .entries import Entry, Table

COLUMNS = (
    "row", "paper", "ours", "seeds", "tokens", "FLOPs", "H100 hours", "checkpoints"
)  # fmt: skip
INTRODUCTION = (
    "Every table and figure of DIET (Chen et al., 2021) and TUPE (Ke et al., 2021), row by row: "
    "what the paper prints, what ours came to and at which size, and what one run at the paper's "
    "size would cost. Empty: not run. The tables' commands train scores as the papers have them, "
    "without this package's gain and local start; the models of the figures have both. TEXT, "
    "TEXTS, GLUE and DATA stand for files and folders of yours."
)
COSTS = (
    "Costs are computed from the configurations: tokens that pretraining or translation reads, "
    f"operations of matrix products, hours of one H100 at {UTILISATION:.0%} of its "
    f"{H100 / 1e12:.0f} TFLOP/s in bf16, and the checkpoints that are kept, at {BYTES} bytes a "
    "parameter. Fine-tuning is not in it: DIET's grid on GLUE, 40 runs of each task, reads at most "
    "3.6e10 tokens for a row, a seventh of its pretraining. A run that several tables share is "
    "counted with each."
)
HTML = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>The papers' tables</title>
<style>body { font: 1rem/1.5 system-ui, sans-serif; margin: 1rem }
.wide { overflow-x: auto } td, th { padding: .2rem .6rem; text-align: left; vertical-align: top }
table { border-collapse: collapse } td, th { border-bottom: 1px solid #8888 }
pre { overflow-x: auto }</style></head><body><h1>The papers' tables</h1>
<p>{{ introduction }}</p><p>{{ costs }}</p>
{% for table in tables %}<h2>{{ table.title }}</h2>
{% if table.remark %}<p>{{ table.remark }}.</p>{% endif %}
<div class="wide"><table>
<tr>{% for name in columns %}<th>{{ name }}</th>{% endfor %}</tr>
{% for entry in table.entries %}
<tr>{% for cell in cells(entry) %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table></div>
{% for entry in table.entries %}
<details><summary>{{ entry.row }}</summary><pre>{{ entry.commands|join("\n") }}</pre></details>
{% endfor %}{% endfor %}</body></html>
"""


def cells(entry: Entry) -> list[str]:
    """Its cells, as `COLUMNS`."""
    name = f"{entry.row} ({entry.note})" if entry.note else entry.row
    paper = ", ".join(
        f"{value}" if len(entry.paper) == 1 else f"{column} {value}"
        for column, value in entry.paper.items()
    )
    return [name, paper, entry.ours, entry.seeds, *cost_cells(entry.cost)]


def cost_cells(cost: Cost | None) -> list[str]:
    if cost is None:
        return [""] * 4
    return [
        f"{cost.tokens:.2g}",
        f"{cost.operations:.2g}",
        f"{cost.hours:,.0f}",
        f"{cost.kept}: {cost.disk / 1e9:,.0f} GB",
    ]


def markdown(tables: Sequence[Table]) -> str:
    """A page with a table for each of the papers', and the commands below it."""
    parts = ["# Reproducing the papers", INTRODUCTION, COSTS]
    for table in tables:
        remark = [f"{table.remark[0].upper()}{table.remark[1:]}."] if table.remark else []
        parts += [f"## {table.title}", *remark]
        lines = [f"| {' | '.join(COLUMNS)} |", "|" + " --- |" * len(COLUMNS)]
        for entry in table.entries:
            row, paper, ours, *rest = cells(entry)
            if entry.where:
                ours = f"[{ours}]({entry.where})"
            lines.append(f"| {' | '.join([row, paper, ours, *rest])} |")
        parts += ["\n".join(lines), commands(table)]
    return "\n\n".join(parts) + "\n"


def commands(table: Table) -> str:
    """The commands of a table, each once: what several rows have in common stands alone."""
    lines: dict[str, list[str]] = {}
    for entry in table.entries:
        for command in entry.commands:
            lines.setdefault(command, []).append(entry.row)
    return "\n".join(["```sh", *lines, "```"])


def html(tables: Sequence[Table]) -> str:
    template = Environment(autoescape=True).from_string(HTML)
    return template.render(
        tables=tables, columns=COLUMNS, cells=cells, introduction=INTRODUCTION, costs=COSTS
    )


def as_json(tables: Sequence[Table]) -> str:
    def whole(entry: Entry) -> dict[str, Any]:
        content = asdict(entry)
        if entry.cost is not None:
            content["cost"] |= {"H100 hours": entry.cost.hours, "disk": entry.cost.disk}
        return content

    found = [
        {"key": table.key, "title": table.title, "remark": table.remark,
         "rows": [whole(entry) for entry in table.entries]}
        for table in tables
    ]  # fmt: skip
    return json.dumps(found, indent=1) + "\n"


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "markdown": markdown,
    "html": html,
    "json": as_json,
}
