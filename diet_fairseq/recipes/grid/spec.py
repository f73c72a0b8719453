"""What a grid is: a TOML file that names rows, seeds and the budget that all rows have in common.

    kind = "pretraining"                 # or another of KINDS
    folder = "roberta"                   # prepared data
    options = "--encoder roberta --updates 4000"
    seeds = [1]

    [rows]                               # row of the table = what the command is given for it
    shaw = "shaw"
    "diet_rel, gain 1" = "diet_rel --position-gain 1"

    [seeds_of]                           # rows with other seeds than the rest
    shaw = [1, 2, 3]

What a row is given is a scheme and options of ``encoder pretrain`` or ``translation train``. Kinds
have keys of their own (*: may be left out):

    translation   pair = "en-de"; evaluate*: options of ``translation evaluate``
    fine-tuning   tasks = "RTE,MRPC" or "all"; a row is given CHECKPOINT and options of
                  ``encoder finetune``, and its learning rates and epochs make a grid by themselves
    script        script: a Python file, to which a row's options and ``--seed N --out FOLDER`` are
                  given, and which writes FOLDER/scores.json: numbers; measures*: those to show
"""

import re
import shlex
import tomllib
from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ...errors import UserError
from ..common.options import by_name, folder_path

#: options of ``translation evaluate`` that score something else
OWN_TEST = ("--test-set", "--input", "--output")
#: kind -> the key that it needs, and the one that it may have
KINDS = {
    "pretraining": ("", ""),
    "translation": ("pair", "evaluate"),
    "fine-tuning": ("tasks", ""),
    "script": ("script", "measures"),
}


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    grid: str
    row: str
    given: tuple[str, ...]
    seed: int

    @property
    def run(self) -> str:
        """The name of its folder among the runs."""
        return f"{self.grid}-{in_name(self.row)}-s{self.seed}"


def in_name(row: str) -> str:
    """A row as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", row)


@dataclass(frozen=True)
class Grid:
    """Rows by seeds; see the module for what each field is in the file."""

    name: str  # of the file
    kind: str
    folder: Path
    rows: dict[str, str]
    options: str = ""
    evaluate: str = ""
    pair: str = ""
    tasks: str = ""
    script: str = ""
    measures: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=lambda: [1])
    seeds_of: dict[str, list[int]] = field(default_factory=dict)

    def cells(self) -> Iterator[Cell]:
        """All of the first seed, then all of the next: a grid that is cut has every row."""
        seeds = {row: self.seeds_of.get(row, self.seeds) for row in self.rows}
        for seed in sorted({seed for some in seeds.values() for seed in some}):
            for row, given in self.rows.items():
                if seed in seeds[row]:
                    yield Cell(self.name, row, tuple(shlex.split(given)), seed)

    def only(
        self, rows: list[str] | None, seeds: list[int] | None, baseline: str | None = None
    ) -> list[Cell]:
        """The cells of these rows, and of the baseline's, and of these seeds; None: of all."""
        compared = [] if baseline is None else [baseline]
        for option, named in (("rows", rows or []), ("baseline", compared)):
            for row in named:
                if row not in self.rows:
                    there = ", ".join(map(repr, self.rows))
                    raise UserError(f"--{option} {row!r}: the grid has {there}: take one of these")
        known = {cell.seed for cell in self.cells()}
        for seed in seeds or []:
            if seed not in known:
                raise UserError(
                    f"--seeds {seed}: the grid has {', '.join(map(str, sorted(known)))}"
                )
        return [
            cell
            for cell in self.cells()
            if (rows is None or cell.row in [*rows, *compared])
            and (seeds is None or cell.seed in seeds)
        ]


def read(path: Path) -> Grid:
    """The grid of a file.

    Raises:
        UserError: what is wrong with the file
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}): name a grid's file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML ({error}): correct the file") from error
    known = {one.name: one.type for one in fields(Grid)} | {"name": None}
    for key in found:
        if key == "name" or key not in known:
            names = ", ".join(name for name in known if name != "name")
            raise UserError(f"{path} has the key {key}, which is unknown: take {names}")
    wanted: dict[str, type] = {"kind": str, "folder": str, "rows": dict, "seeds": list}
    wanted |= {"options": str, "evaluate": str, "pair": str, "seeds_of": dict}
    wanted |= {"tasks": str, "script": str, "measures": list}
    for key, kind in wanted.items():
        if key in ("kind", "folder", "rows") and key not in found:
            raise UserError(f"{path} has no {key}: add it")
        if key in found and not isinstance(found[key], kind):
            raise UserError(f"{path}: {key} must be a TOML {kind.__name__}, but is {found[key]!r}")
    _check(path, found)
    return Grid(name=path.stem, **found | {"folder": Path(found["folder"])})


def _check(path: Path, found: dict[str, Any]) -> None:
    if found["kind"] not in KINDS:
        raise UserError(f"{path}: kind must be one of {', '.join(KINDS)}, not {found['kind']}")
    needed, _ = KINDS[found["kind"]]
    if needed and not found.get(needed):
        raise UserError(f"{path} has no {needed}, which a grid of the kind {found['kind']} needs")
    for kind, keys in KINDS.items():
        for key in set(keys) & set(found):
            if kind != found["kind"]:
                raise UserError(f"{path}: {key} is for grids of the kind {kind}: leave it out")
    try:
        folder_path(found["folder"])
    except ArgumentTypeError as error:
        raise UserError(f"{path}: folder {error}: give it another name") from error
    if "pair" in found and not re.fullmatch(r"\w+-\w+", found["pair"]):
        raise UserError(f'{path}: pair must be like "en-de", but is {found["pair"]!r}')
    if not found["rows"] or not all(isinstance(row, str) for row in found["rows"].values()):
        raise UserError(f"{path}: every row of [rows] is text: what the command is given for it")
    for where, words in [
        *((key, found.get(key, "")) for key in ("options", "evaluate")),
        *((f"the row {row!r}", words) for row, words in found["rows"].items()),
    ]:
        try:
            split = shlex.split(words)
        except ValueError as error:
            raise UserError(
                f"{path}: {where} can't be read as words ({error}): correct it"
            ) from error
        if not split and where.startswith("the row") and found["kind"] != "script":
            raise UserError(f"{path}: {where} is empty: give it what the command is to be given")
        if where == "evaluate" and set(by_name(split)) & set(OWN_TEST):
            raise UserError(
                f"{path}: evaluate can't have {', '.join(OWN_TEST)}: a grid is scored on its "
                "corpus's test set"
            )
    names: dict[str, str] = {}
    for row in found["rows"]:
        if (other := names.setdefault(in_name(row), row)) != row:
            raise UserError(
                f"{path}: the rows {other!r} and {row!r} would both be the run {in_name(row)}: "
                "give one of them another name"
            )
    for row, seeds in [("seeds", found.get("seeds", [1])), *found.get("seeds_of", {}).items()]:
        if not (isinstance(seeds, list) and seeds and all(type(s) is int and s > 0 for s in seeds)):
            raise UserError(f"{path}: the seeds of {row} must be numbers above 0, not {seeds!r}")
    for row in found.get("seeds_of", {}):
        if row not in found["rows"]:
            raise UserError(f"{path}: [seeds_of] names {row!r}, which is not a row")
