"""``diet-fairseq patches``: the changes that the plugin makes to fairseq, and their reasons."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..patches.patch import Patch, Setting

HEADS = ("target", "what stands there", "why", "until", "needed with")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")


def run(args: Namespace) -> None:
    from ..patches.table import TABLE

    show = markdown if args.markdown else plain
    print(show(TABLE))


def cells_of(change: "Patch | Setting") -> tuple[str, ...]:
    how = f"{change.how}: " if hasattr(change, "how") else ""
    return change.target, how + change.what(), change.why, change.until, change.needed_with


def plain(table: "Iterable[Patch | Setting]") -> str:
    """Each target with its other columns below it: a row is wider than a screen."""
    width = max(map(len, HEADS))
    blocks = []
    for target, *cells in map(cells_of, table):
        lines = [f"    {head:{width}}  {cell}" for head, cell in zip(HEADS[1:], cells, strict=True)]
        blocks.append("\n".join([target, *lines]))
    return "\n\n".join(blocks)


def markdown(table: "Iterable[Patch | Setting]") -> str:
    rows = [HEADS, ("---",) * len(HEADS)]
    for target, what, *words in map(cells_of, table):
        rows.append((f"`{target}`", f"`{what}`", *words))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
