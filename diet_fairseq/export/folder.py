"""Output folders, complete or absent; a mark limits ``--force`` to folders that we wrote."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel

from .. import input_files
from ..atomic import rename
from ..errors import UserError, one_line

#: the mark, which lists the files that the command wrote
MARK = ".diet_fairseq.json"


class Mark(BaseModel):
    """The content of `MARK`; ``files`` are paths within the folder."""

    files: list[str]


def check(out: Path, force: bool) -> None:
    """Refuse an ``out`` that exists, unless ``force`` may replace it.

    Raises:
        UserError: ``out`` exists without ``force``, has no mark, or has a foreign file
    """
    if not os.path.lexists(out):
        return
    if not force:
        raise UserError(f"{out} exists: give another folder, or --force to replace it")
    if out.is_symlink() or not os.path.lexists(out / MARK):
        raise UserError(
            f"--force replaces folders that this command wrote, but {out} has no {MARK}: give "
            "another folder"
        )
    mark = input_files.read_object(out / MARK, Mark, input_files.VOCABULARY)
    for name in files_in(out):
        if name not in mark.files:
            raise UserError(
                f"--force replaces folders that this command wrote, but {out} holds "
                f"{one_line(name)}, which it did not write: move it, or give another folder"
            )


@contextmanager
def create(out: Path, force: bool) -> Iterator[Path]:
    """A temporary folder to write to, which is renamed to ``out`` when it is complete."""
    check(out, force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.") as aside:
            new = Path(aside, "new")
            new.mkdir()
            yield new
            mark = Mark(files=[*files_in(new), MARK])
            (new / MARK).write_text(mark.model_dump_json(indent=1) + "\n", encoding="utf-8")
            if out.exists():
                check(out, force)  # it may have changed in the meantime
                out.rename(Path(aside, "old"))  # removed with its folder
            rename(new, out)
    except OSError as error:
        raise UserError(
            f"{out} can't be written: {error.strerror or error}; make room or give another folder"
        ) from error


def files_in(folder: Path) -> list[str]:
    """Relative paths of all files below a folder, and of links, which are not followed."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(str(path.relative_to(folder)) for path in paths)
