"""Output folders: whole or absent, and marked, so that ``--force`` replaces only ours."""

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

#: errors of writing; safetensors, which an extra installs, has one of its own
WRITE_ERRORS: tuple[type[Exception], ...] = (OSError,)
with suppress(ModuleNotFoundError):
    from safetensors import SafetensorError

    WRITE_ERRORS = (OSError, SafetensorError)

#: the mark: a list of the files that the command has written
MARK = ".diet_fairseq.json"
#: files of exports before the mark was introduced, which are recognised by their model.json
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
    """Refuse an ``out`` that exists, unless it may be replaced and all files in it are ours.

    Raises:
        UserError: ``out`` exists without ``force``, has no mark, or has a file of somebody else
    """
    if not out.exists() and not out.is_symlink():
        return
    if not force:
        raise UserError(f"{out} exists: give another folder, or --force to replace it")
    files = None if out.is_symlink() or not out.is_dir() else _files_of_ours(out)
    if files is None:
        raise UserError(
            f"--force replaces folders that this command wrote, but {out} has no {MARK}: give "
            "another folder"
        )
    strange = next((name for name in files_in(out) if name not in files), None)
    if strange is not None:
        raise UserError(
            f"--force replaces folders that this command wrote, but {out} holds "
            f"{one_line(strange)}, which it did not write: move it, or give another folder"
        )


@contextmanager
def written(out: Path, force: bool) -> Iterator[Path]:
    """A new folder beside ``out`` to write to, which becomes ``out`` when it is complete."""
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
                check(out, force)  # files may have come while this was written
                out.rename(Path(aside, "old"))  # which is removed with its folder
            rename(new, out)
    except shutil.Error as error:
        raise UserError(f"{out} can't be written: {error}; give another folder") from error
    except WRITE_ERRORS as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{out} can't be written: {reason}; make room or give another folder"
        ) from error


def files_in(folder: Path) -> list[str]:
    """Paths of the files in a folder and its subfolders, and of links, which are not followed."""
    found = []
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        found += [os.path.relpath(os.path.join(place, name), folder) for name in files + links]
    return sorted(found)


def _files_of_ours(out: Path) -> set[str] | None:
    """The files that the command has written into ``out``; None: the folder is not ours."""
    if os.path.lexists(out / MARK):
        return set(input_files.read_object(out / MARK, Mark, input_files.VOCABULARY).files)
    try:
        about = model_json.read(out)
    except UserError:
        return None
    languages = (about.source_lang, about.target_lang)
    return FILES_BEFORE | {f"dict.{language}.txt" for language in languages}
