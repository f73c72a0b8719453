"""Files: written completely or not at all, and read as untrusted input.

Written files. A file is first written as ``NAME.WRITER.tmp`` in its folder, and renamed when it is
completely on the disk. A process that is killed at any moment leaves the old file or the new file;
if several processes write to one name at once, the last one to finish wins.

Untrusted files. Only regular files are opened, and at most a limit of bytes is read. Pipes without
a writer, endless devices, links to either, gzip files that unpack to more than memory holds, and
deeply nested JSON are refused before they cost time or memory. Every function that reads raises a
`UserError` that names the file and the fault, and ends with ``advice``.
"""

import gzip
import json
import os
import re
import stat
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

from .errors import UserError, one_line

Model = TypeVar("Model")
#: suffix of a file that is being written
TMP_SUFFIX = ".tmp"
#: limit of bytes in a JSON file such as `config.json`, which usually has some hundred bytes
MAX_JSON_BYTES = 1 << 20
#: limit of bytes in a vocabulary, subword model or list of merges, which usually has a million
MAX_VOCABULARY_BYTES = 1 << 26
ADVICE = "give another file"

# --- written files


@contextmanager
def atomic_file(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write to, which is renamed to ``path`` when it is complete.

    Text is UTF-8, and only a newline ends a line.

    Raises:
        UserError: the file can't be written; an old file at ``path`` is unchanged
    """
    tmp_path = f"{path}.{os.getpid()}-{threading.get_ident()}{TMP_SUFFIX}"
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
    try:
        with open(tmp_path, mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename_durably(tmp_path, path)
    except BaseException as error:
        with suppress(OSError):
            os.remove(tmp_path)
        if isinstance(error, UserError):
            raise
        # torch.save raises an error of its own while it handles the system's error
        for cause in (error, error.__context__):
            if isinstance(cause, OSError) and cause.strerror:  # errors of gzip and bz2 lack it
                raise UserError(
                    f"{path} can't be written: {cause.strerror}; free some space or name another "
                    "place (checkpoints: --save-dir); existing files are unchanged"
                ) from error
        raise


def refuse_existing(folder: Path) -> None:
    """Refuse a path that exists.

    Raises:
        UserError: the path exists
    """
    if os.path.lexists(folder):
        raise UserError(f"{folder} already exists: remove it, or give another folder")


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to write to, which is renamed to ``folder`` when it is complete.

    Raises:
        UserError: the folder can't be written; no partial folder remains
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as parent:
            tmp_folder = Path(parent, "new")
            tmp_folder.mkdir()
            yield tmp_folder
            rename_durably(tmp_folder, folder)  # fails if the folder has files by now
    except OSError as error:
        raise UserError(
            f"{folder} can't be written: {error.strerror or error}; make room or give another "
            "folder"
        ) from error


def rename_durably(tmp_path: str | Path, path: str | Path) -> None:
    """Rename a complete file and flush its folder, so that the rename survives a crash."""
    os.replace(tmp_path, path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# --- untrusted files


def check_regular(
    path: str | os.PathLike[str],
    max_bytes: int | None = None,
    advice: str = ADVICE,
    descriptor: int | None = None,
) -> None:
    """Refuse a file that is not regular or is too large, before a library opens it.

    Args:
        descriptor: the file's descriptor, if the file is open
    """
    try:
        status = os.stat(path if descriptor is None else descriptor)
    except (OSError, ValueError) as error:
        raise _read_error(path, error, advice) from error
    name = one_line(str(path))
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise UserError(f"{name} is {kind}: {advice}")
    if max_bytes is not None and status.st_size > max_bytes:
        raise UserError(
            f"{name} is too large: it must have at most {max_bytes:,} bytes, but has "
            f"{status.st_size:,}; {advice}"
        )


def open_regular(
    path: str | os.PathLike[str], max_bytes: int | None = None, advice: str = ADVICE
) -> BinaryIO:
    """Open a regular file of at most ``max_bytes`` bytes (None: no limit), to read bytes."""
    check_regular(path, max_bytes, advice)  # even opening some devices has effects
    try:
        # The file may have been replaced meanwhile; O_NONBLOCK opens a pipe without a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise _read_error(path, error, advice) from error
    try:
        check_regular(path, max_bytes, advice, descriptor)
    except UserError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def open_text(
    path: str | os.PathLike[str], advice: str = ADVICE, newline: str | None = None
) -> TextIOWrapper:
    """Open a regular file of `MAX_VOCABULARY_BYTES` to read UTF-8; ``newline`` as in `open`."""
    file = open_regular(path, MAX_VOCABULARY_BYTES, advice)
    return TextIOWrapper(file, encoding="utf-8", newline=newline)


def read_text(path: Path, advice: str = ADVICE) -> str:
    """The UTF-8 text of a regular file of `MAX_VOCABULARY_BYTES`; line ends are unchanged."""
    try:
        return read_bytes(path, MAX_VOCABULARY_BYTES, advice).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start + 1:,} is "
            f"{error.object[error.start]:#04x}): {advice}"
        ) from error


def read_bytes(path: Path, max_bytes: int, advice: str = ADVICE) -> bytes:
    """The content of a regular file, unpacked if its name ends in ``.gz``."""
    with open_regular(path, max_bytes, advice) as file:
        try:
            source: Any = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            content = source.read(max_bytes + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{path} is truncated or damaged ({error}): {advice}") from error
        except OSError as error:
            raise _read_error(path, error, advice) from error
    if len(content) > max_bytes:
        raise UserError(f"{path} is too large: it must have at most {max_bytes:,} bytes; {advice}")
    return content


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES, advice: str = ADVICE) -> Any:
    """The value in a JSON file with at most 200 levels, and at most 4,300 digits per integer."""
    from pydantic_core import from_json

    try:
        return from_json(read_bytes(path, max_bytes, advice).removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not valid JSON ({one_line(str(error))}): {advice}") from error


def read_json_object(
    path: Path, model: type[Model], max_bytes: int = MAX_JSON_BYTES, advice: str = ADVICE
) -> Model:
    """The object in a JSON file, validated by the pydantic ``model``."""
    value = read_json(path, max_bytes, advice)
    if not isinstance(value, dict):
        raise UserError(f"{path} is not a JSON object: {advice}")
    return validate(value, model, f"{path}: ", advice)


def validate(value: Any, model: type[Model], where: str, advice: str = ADVICE) -> Model:
    """The value, validated by the pydantic ``model``; errors begin with ``where``."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(model).validate_python(value)
    except ValidationError as error:
        raise UserError(f"{where}{describe_validation_error(error)}; {advice}") from error


def describe_validation_error(error: Any) -> str:
    """The first fault of a pydantic ``ValidationError`` on one line: key, rule and value."""
    fault = error.errors(include_url=False)[0]
    key = one_line(".".join(map(str, fault["loc"])))
    if fault["type"] == "missing":
        return f"{key} is missing"
    rule = re.sub(r"^\w+ should", "must", fault["msg"].removeprefix("Value error, "))
    rule = re.sub(r"a valid dictionary or instance of \w+", "an object", rule)
    try:
        value = json.dumps(fault["input"])
    except (TypeError, ValueError):  # such as an integer with too many digits
        value = f"a {type(fault['input']).__name__}"
    value = value if len(value) < 80 else f"{value[:76]} ..."
    return f"{key} {one_line(rule)}, but is {value}".lstrip()


def _read_error(
    path: str | os.PathLike[str], error: OSError | ValueError, advice: str
) -> UserError:
    reason = getattr(error, "strerror", None) or str(error)
    return UserError(f"{one_line(str(path))} can't be read: {reason}; {advice}")
