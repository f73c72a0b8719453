"""``patches``: what importing the plugin, or `diet_fairseq.hf`, changes elsewhere, and why."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable

from ..patches.patch import Patch, Setting
from ..patches.table import TABLE, TABLE_OF_HF

HEADS = ("target", "what stands there", "why", "until", "needed with")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")


def run(args: Namespace) -> None:
    show = markdown if args.markdown else plain
    print(show([*TABLE, *TABLE_OF_HF]))


def cells_of(change: Patch | Setting) -> tuple[str, ...]:
    how = f"{change.how}: " if isinstance(change, Patch) else ""
    return change.target, how + change.what(), change.why, change.until, change.needed_with


def plain(table: Iterable[Patch | Setting]) -> str:
    """Each target with its other columns below it: a row is wider than a screen."""
    width = max(map(len, HEADS))
    blocks = []
    for target, *cells in map(cells_of, table):
        lines = [f"    {head:{width}}  {cell}" for head, cell in zip(HEADS[1:], cells, strict=True)]
        blocks.append("\n".join([target, *lines]))
    return "\n\n".join(blocks)


def markdown(table: Iterable[Patch | Setting]) -> str:
    rows = [HEADS, ("---",) * len(HEADS)]
    for target, what, *words in map(cells_of, table):
        rows.append((f"`{target}`", f"`{what}`", *words))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
