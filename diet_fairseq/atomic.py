"""Files that are complete or absent.

Every file is first written as ``NAME.WRITER.tmp`` in the same folder, and renamed once all of it is
on the disk. A process that is killed at any moment leaves the old file or the new one; of several
that write to one name at once, the last to end wins.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .errors import UserError

ASIDE = ".tmp"


@contextmanager
def atomic_file(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write to, which becomes ``path`` at the end; a failure is a `UserError`.

    Text is UTF-8, and its lines end in a newline alone.
    """
    aside = f"{path}.{os.getpid()}-{threading.get_ident()}{ASIDE}"
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
    try:
        with open(aside, mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename(aside, path)
    except BaseException as error:
        with suppress(OSError):
            os.remove(aside)
        if isinstance(error, UserError):
            raise
        # torch.save wraps the system's error into one of its own.
        for cause in (error, error.__context__):
            if isinstance(cause, OSError) and cause.strerror:  # gzip's and bz2's have no text of it
                raise UserError(
                    f"{path} can't be written: {cause.strerror}; free some space or name another "
                    "place (checkpoints: --save-dir); existing files are unchanged"
                ) from error
        raise


def rename(aside: str | Path, path: str | Path) -> None:
    """Rename a complete file, and flush its folder, so that the rename survives a crash."""
    os.replace(aside, path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
