"""A folder that is there whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ..atomic import rename
from ..errors import UserError


def check_new(out: Path) -> None:
    """Refuse to write where something is."""
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} is there already: give another folder, or remove it")


@contextmanager
def written_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``out`` when all is written; a failure is a `UserError`."""
    check_new(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"{out.name}.", dir=out.parent) as beside:
            folder = Path(beside) / out.name
            folder.mkdir()
            yield folder
            rename(folder, out)
    except OSError as error:
        raise UserError(
            f"{out} can't be written: {error.strerror or error}; give another place"
        ) from error
