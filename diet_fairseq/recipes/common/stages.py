"""Stages: folders that are whole or not there, and know what they were made from."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...errors import UserError
from ...progress import heartbeat

MADE_FROM = "made-from.json"


def stage(folder: Path, made_from: dict[str, Any], make: Callable[[Path], None]) -> dict[str, Any]:
    """Have ``make`` fill the folder, unless it is there already.

    ``make`` works on a folder beside it, which gets its name in the end: an interrupted run
    leaves no half stage. Returns ``made_from``, for the stage that is made from this one.
    """
    made_from = json.loads(json.dumps(made_from))
    if folder.exists():
        _check(folder, made_from)
        print(f"{folder}: done before")
        return made_from
    print(f"{folder}: working")
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    started = time.monotonic()
    # tqdm draws its bars, if there are any, around what it writes.
    with heartbeat(lambda: tqdm.write(f"{folder}: working, {time.monotonic() - started:.0f} s")):
        make(partial)
    (partial / MADE_FROM).write_text(json.dumps(made_from, indent=1) + "\n", encoding="utf-8")
    partial.rename(folder)
    return made_from


def _check(folder: Path, wanted: dict[str, Any]) -> None:
    try:
        before = json.loads((folder / MADE_FROM).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is not ours: remove it, or take another --folder") from error
    for name in [*wanted, *before]:
        was, is_ = before.get(name), wanted.get(name)
        if was != is_:
            raise UserError(
                f"{folder} was made with another {name} ({short(was)}, now {short(is_)}): take "
                "another --folder, or remove this one and those made after it"
            )


def short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 80 else text[:76] + " ..."
