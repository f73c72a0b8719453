"""The table of properties and schemes at the end of a test run, read off the tests' names."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from diet_fairseq.positions import SCHEMES

#: a property's name and the scheme, which begins the name of a case: `test_it_holds[shaw-clip=2]`
NAME = re.compile(
    r"::test_(?P<of>\w+)\[(?P<scheme>%s)(?=[-\]])" % "|".join(SCHEMES)  # noqa: UP031
)
#: from best to worst: the mark of a cell is its worst case's
MARKS = {"passed": "+", "skipped": "s", "failed": "FAIL", "error": "FAIL"}


def property_table(stats: Mapping[str, Sequence[Any]]) -> list[str]:
    """The lines: one row for each property, one column for each scheme.

    Args:
        stats: pytest's reports by their outcome
    """
    cells: dict[str, dict[str, tuple[int, int]]] = {}  # (rank of the worst mark, cases)
    for rank, outcome in enumerate(MARKS):
        for report in stats.get(outcome, ()):
            found = NAME.search(report.nodeid)
            if found is None or (outcome == "passed" and report.when != "call"):
                continue
            row = cells.setdefault(found["of"].replace("_", " "), {})
            worst, cases = row.get(found["scheme"], (0, 0))
            row[found["scheme"]] = (max(worst, rank), cases + 1)
    if not cells:
        return []
    marks = list(MARKS.values())
    width = max(map(len, cells))
    lines = ["", "properties and schemes: number of cases, all passed unless marked", ""]
    lines.append(" " * width + "".join(f"{name:>13}" for name in SCHEMES))
    for of, row in cells.items():
        line = f"{of:<{width}}"
        for name in SCHEMES:
            worst, cases = row.get(name, (0, 0))
            mark = "" if marks[worst] == "+" else marks[worst] + " "
            line += f"{f'{mark}{cases}' if cases else '':>13}"
        lines.append(line)
    return lines
