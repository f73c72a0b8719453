"""paper_tables.json: the numbers that the papers print, table by table."""

from pathlib import Path
from typing import Any

from ...errors import UserError
from ..common.json_files import read_json

#: tables whose rows have their numbers beside other fields
FLAT = ("diet_table1_speed", "diet_table4_mt", "diet_table6_parameters")
#: the one column of TUPE's averages
VALUE = "value"
Rows = list[dict[str, Any]]


def read_papers(path: Path) -> dict[str, Rows]:
    """The tables by name, each a list of rows with numbers by column as their ``scores``.

    Raises:
        UserError: the file can't be read, or a row has no model or no such numbers
    """
    try:
        content = read_json(path)
    except UserError as error:
        raise UserError(f"--papers {error}") from error
    try:
        return {name: rows_of(name, table) for name, table in dict(content).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"--papers {path} is not a paper_tables.json ({error}): name another file"
        ) from error


def rows_of(name: str, table: dict[str, Any]) -> Rows:
    """A table's rows; TUPE's averages, a number for each model, are rows, too."""
    rows = table.get("rows", [])
    if isinstance(rows, dict):
        rows = [{"model": model, "scores": {VALUE: value}} for model, value in rows.items()]
    found = []
    for number, row in enumerate(rows, 1):
        scores = row.get("scores")
        if name in FLAT:
            scores = {column: value for column, value in row.items() if is_number(value)}
        elif not isinstance(row.get("model"), str):
            raise ValueError(f"row {number} of {name} has no model")
        if not (isinstance(scores, dict) and scores and all(map(is_number, scores.values()))):
            raise ValueError(f"row {number} of {name} has no numbers as its scores")
        found.append(row | {"scores": scores})
    return found


def is_number(value: Any) -> bool:
    return isinstance(value, int | float)
