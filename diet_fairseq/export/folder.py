"""Output folders, complete or absent; a mark limits ``--force`` to folders that we wrote."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from .. import input_files, model_json
from ..atomic import rename
from ..errors import UserError, one_line

#: errors of writing, safetensors' included where it is installed
WRITE_ERRORS: tuple[type[Exception], ...] = (OSError,)
with suppress(ModuleNotFoundError):
    from safetensors import SafetensorError

    WRITE_ERRORS = (OSError, SafetensorError)

#: the mark, which lists the files that the command wrote
MARK = ".diet_fairseq.json"
#: files of exports older than the mark, which are recognised by their model.json
FILES_BEFORE = {
    *("README.md", "codes", "config.json", "generation_config.json", "model.bin", "model.json"),
    *("model.pt", "model.safetensors", "modeling_diet.py", "sentencepiece.model"),
    *("shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json"),
    *("tokenizer_config.json", "dict.txt", "dict.target.txt"),
}


class Mark(BaseModel):
    """The content of `MARK`; ``files`` are paths within the folder."""

    format: Literal["diet_fairseq folder"] = "diet_fairseq folder"
    version: Literal[1] = 1
    files: list[str]


def check(out: Path, force: bool) -> None:
    """Refuse an ``out`` that exists, unless ``force`` may replace it.

    Raises:
        UserError: ``out`` exists without ``force``, has no mark, or has a foreign file
    """
    if not out.exists() and not out.is_symlink():
        return
    if not force:
        raise UserError(f"{out} exists: give another folder, or --force to replace it")
    files = None if out.is_symlink() or not out.is_dir() else _marked_files(out)
    if files is None:
        raise UserError(
            f"--force replaces folders that this command wrote, but {out} has no {MARK}: give "
            "another folder"
        )
    foreign = next((name for name in files_in(out) if name not in files), None)
    if foreign is not None:
        raise UserError(
            f"--force replaces folders that this command wrote, but {out} holds "
            f"{one_line(foreign)}, which it did not write: move it, or give another folder"
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
    except shutil.Error as error:
        raise UserError(f"{out} can't be written: {error}; give another folder") from error
    except WRITE_ERRORS as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{out} can't be written: {reason}; make room or give another folder"
        ) from error


def files_in(folder: Path) -> list[str]:
    """Relative paths of all files below a folder, and of links, which are not followed."""
    paths = []
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        paths += [os.path.relpath(os.path.join(place, name), folder) for name in files + links]
    return sorted(paths)


def _marked_files(out: Path) -> set[str] | None:
    """The files that the command wrote into ``out``; None if it wrote none there."""
    if os.path.lexists(out / MARK):
        return set(input_files.read_object(out / MARK, Mark, input_files.VOCABULARY).files)
    try:
        about = model_json.read(out)
    except UserError:
        return None
    languages = (about.source_lang, about.target_lang)
    return FILES_BEFORE | {f"dict.{language}.txt" for language in languages}
