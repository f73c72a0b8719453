"""Output folders, complete or absent."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError
from ..files import rename_durably


def refuse_existing(folder: Path) -> None:
    """Refuse a path that exists.

    Raises:
        UserError: a file or folder is there
    """
    if os.path.lexists(folder):
        raise UserError(f"{folder} exists: remove it, or give another folder")


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to write to, which is renamed to ``folder`` when it is complete.

    Raises:
        UserError: the folder can't be written; nothing is left of it
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as parent:
            temporary = Path(parent, "new")
            temporary.mkdir()
            yield temporary
            rename_durably(temporary, folder)  # fails if a file has come in the meantime
    except OSError as error:
        raise UserError(
            f"{folder} can't be written: {error.strerror or error}; make room or give another "
            "folder"
        ) from error
