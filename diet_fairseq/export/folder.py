"""Output folders, complete or absent."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..atomic import rename
from ..errors import UserError


def check(out: Path) -> None:
    """Refuse an ``out`` that exists."""
    if os.path.lexists(out):
        raise UserError(f"{out} exists: remove it, or give another folder")


@contextmanager
def create(out: Path) -> Iterator[Path]:
    """A temporary folder to write to, which is renamed to ``out`` when it is complete."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.") as aside:
            new = Path(aside, "new")
            new.mkdir()
            yield new
            rename(new, out)  # fails where a file has come in the meantime
    except OSError as error:
        raise UserError(
            f"{out} can't be written: {error.strerror or error}; make room or give another folder"
        ) from error
