"""A command's options: the numbers that it takes, and all of them as a dataclass."""

import math
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ...errors import UserError

Options = TypeVar("Options")
Number = TypeVar("Number", int, float)


class Strict(ArgumentParser):
    """For words that don't come from a command line: a mistake is a `UserError`."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog=prog, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog}: {message}")


def at_least(least: Number) -> Callable[[str], Number]:
    """For ``add_argument(type=...)``: a finite number of ``least``'s type, not below it."""
    kind = type(least)

    def read(text: str) -> Number:
        value = kind(text)
        if not (least <= value and math.isfinite(value)):
            rule = f"at least {least:g} and finite" if kind is float else f"at least {least}"
            rule = rule if math.isfinite(least) else "a finite number"
            raise ArgumentTypeError(f"must be {rule}, but is {text}")
        return value

    read.__name__ = kind.__name__  # argparse says "invalid int value" of other text
    return read


def folder_name(text: str) -> str:
    """For ``add_argument(type=...)``: the name of one folder, which lies in a folder of ours."""
    if "/" in text:
        raise ArgumentTypeError(f"must be the name of one folder, without a slash, but is {text!r}")
    return run_name(text)


def run_name(text: str) -> str:
    """For ``add_argument(type=...)``: the name of a run among the others, or a path elsewhere.

    A colon is refused because fairseq takes it for the end of a checkpoint's path.
    """
    if text in ("", ".", ".."):
        raise ArgumentTypeError(f"must be the name of a folder of its own, but is {text!r}")
    return readable(text, ":")


def folder_path(text: str) -> Path:
    """For ``add_argument(type=...)``: a folder of data and runs, wherever it lies.

    fairseq takes commas between the prefixes of dev sets, and colons between folders of data.
    """
    return Path(readable(text, ",:"))


def readable(text: str, marks: str) -> str:
    """A name that has none of the marks and can be printed, and written to a file of JSON."""
    for mark in marks:
        if mark in text:
            raise ArgumentTypeError(
                f"must have no {mark!r}, where fairseq splits paths, but is {text!r}"
            )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentTypeError(f"must be UTF-8, but is {text!r}") from error
    return text


def add_workers(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=at_least(1),
        default=len(os.sched_getaffinity(0)),
        help="processes (the cores: %(default)s)",
    )


def given(kind: type[Options], args: Namespace, **more: Any) -> Options:
    """The dataclass's fields out of what was parsed; those in ``more`` out of that."""
    names = {one.name for one in fields(kind)} - set(more)  # type: ignore[arg-type]
    return kind(**{name: getattr(args, name) for name in names}, **more)


def by_name(words: Sequence[str]) -> dict[str, str]:
    """Options and what follows them; the last of the same name wins, as on a command line.

    What comes before the first option has the name "".
    """
    values: list[str] = []
    found = {"": values} if words and not words[0].startswith("--") else {}
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = values = [value] if equals else []
        else:
            values.append(word)
    return {name: " ".join(values) for name, values in found.items()}


def check_figure(option: str, path: Path) -> None:
    """Refuse a file that matplotlib can't draw in: its ending, and a folder that isn't there."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.lower().removeprefix(".") not in known:
        raise UserError(
            f"{option} {path} must end in one of .{', .'.join(known)}: give it another name"
        )
    check_folder(option, path)


def check_folder(option: str, path: Path) -> None:
    """Refuse a file in a folder that isn't there."""
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: there is no folder {path.parent}: make it first")
