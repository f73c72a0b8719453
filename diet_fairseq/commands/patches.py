"""``diet-fairseq patches``: the attributes of fairseq that the plugin changes, and why."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..patches.patch import Patch

HEADS = ("kind", "target", "replacement", "why")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")


def run(args: Namespace) -> None:
    from ..patches.table import TABLE

    print((markdown if args.markdown else plain)(TABLE))


def rows(table: "Iterable[Patch]") -> Iterator[tuple[str, ...]]:
    """The cells of a row for each reason of each target."""
    for patch in table:
        for kind, why in patch.reasons.items():
            yield kind, patch.target, patch.replacement, why


def plain(table: "Iterable[Patch]") -> str:
    """Blocks of kind and target, with a line for each of the other columns."""
    return "\n\n".join(
        f"{kind:6}  {target}\n    replacement  {replacement}\n    why          {why}"
        for kind, target, replacement, why in rows(table)
    )


def markdown(table: "Iterable[Patch]") -> str:
    lines = [HEADS, ("---",) * len(HEADS)]
    for kind, target, replacement, why in rows(table):
        lines.append((kind, f"`{target}`", f"`{replacement}`", why))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
