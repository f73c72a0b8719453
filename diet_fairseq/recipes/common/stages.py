"""Stages: folders that are complete or absent, and know what they were made from."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...atomic import rename
from ...errors import UserError
from ...progress import heartbeat
from .json_files import kept
from .turns import turn

MADE_FROM = "made-from.json"


@dataclass(frozen=True)
class Stage:
    """A step of a pipeline.

    Attributes:
        name: of its folder
        settings: what decides what is in the folder, beside the settings of the stages before
        make: fills the folder that it is given
        report: what to say of the folder when it is there
    """

    name: str
    settings: dict[str, Any]
    make: Callable[[Path], None]
    report: Callable[[], str] | None = None


def run_all(folder: Path, stages: Iterable[Stage]) -> None:
    """Run the stages, one after the other; each has a folder in this one."""
    folder.mkdir(parents=True, exist_ok=True)
    made_from: dict[str, Any] = {}
    for one in stages:
        made_from = made_from | one.settings
        stage(folder / one.name, made_from, one.make)
        if one.report:
            print(one.report())


def stage(folder: Path, made_from: dict[str, Any], make: Callable[[Path], None]) -> None:
    """Have ``make`` fill the folder, unless it is there already, or another command is at it.

    ``make`` works on a folder beside it, which gets its name in the end: an interrupted run
    leaves no half stage.
    """
    made_from = json.loads(json.dumps(made_from))
    if not folder.exists():
        waits = f"{folder}: waits for another command, which makes it"
        with turn(folder.parent, f"stage-{folder.name}", lambda: print(waits, flush=True)):
            if not folder.exists():
                _make(folder, made_from, make)
                return
    _check(folder, made_from)
    print(f"{folder}: done before")


def _make(folder: Path, made_from: dict[str, Any], make: Callable[[Path], None]) -> None:
    print(f"{folder}: working")
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    started = time.monotonic()
    # tqdm draws its bars, if there are any, around what it writes.
    with heartbeat(lambda: tqdm.write(f"{folder}: working, {time.monotonic() - started:.0f} s")):
        make(partial)
    (partial / MADE_FROM).write_text(json.dumps(made_from, indent=1) + "\n", encoding="utf-8")
    rename(partial, folder)


def _check(folder: Path, wanted: dict[str, Any]) -> None:
    before = kept(
        folder / MADE_FROM,
        f"{folder} was not made by this command: remove it, or take another --folder",
    )
    if other := difference(before, wanted):
        raise UserError(
            f"{folder} was made with other settings: {other}: take another --folder, or remove "
            "this folder and those made after it"
        )


def left(stage: Path, name: str, **needed: type) -> dict[str, Any]:
    """What a finished stage says in this file; see `kept`."""
    return kept(stage / name, f"remove {stage}, and run `prepare` again", **needed)


def difference(before: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """The first setting that differs, with both its values; of groups and lists the first entry."""
    for name in [*wanted, *before]:
        was, is_ = before.get(name), wanted.get(name)
        if was == is_:
            continue
        if isinstance(was, dict) and isinstance(is_, dict):
            return f"{name}, {difference(was, is_)}"
        if isinstance(was, list) and isinstance(is_, list) and len(was) == len(is_):
            was, is_ = next(both for both in zip(was, is_, strict=True) if both[0] != both[1])
        return f"{name} ({_short(was)}, now {_short(is_)})"
    return None


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 80 else text[:76] + " ..."


def fingerprint(path: Path) -> list[Any]:
    """Name and contents of a file: whether a stage was made from this one, wherever it lies now."""
    return [path.name, digest_of(path)[:16]]


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from error
