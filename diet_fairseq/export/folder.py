"""A folder that is there whole or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..atomic import rename
from ..errors import UserError

#: what every export has in it
MARK = "config.json"


def check(out: Path, force: bool, mark: str = MARK) -> None:
    """Refuse an ``out`` that is there, unless it holds ``mark`` and may be replaced."""
    if not out.exists() and not out.is_symlink():
        return
    if not force:
        raise UserError(f"{out} exists: give another folder, or --force to replace it")
    if out.is_symlink() or not (out / mark).is_file():
        raise UserError(
            f"--force replaces what this command wrote, but {out} has no {mark}: give another "
            "folder"
        )


@contextmanager
def written(out: Path, force: bool, mark: str = MARK) -> Iterator[Path]:
    """A new folder beside ``out`` to write to, which becomes ``out`` when all is written."""
    check(out, force, mark)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.") as aside:
            new = Path(aside, "new")
            new.mkdir()
            yield new
            if out.exists():
                out.rename(Path(aside, "old"))  # which goes with its folder
            rename(new, out)
    except shutil.Error as error:
        raise UserError(f"{out} can't be written: {error}; give another folder") from error
    except OSError as error:
        raise UserError(
            f"{out} can't be written: {error.strerror or error}; make room or give another folder"
        ) from error
