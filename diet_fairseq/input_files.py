"""Untrusted files: only regular files are opened, and at most a limit of bytes is read.

Pipes without a writer, endless devices, links to either, gzip files that unpack to more than memory
holds, and deeply nested JSON are refused before they cost time or memory. Every function raises a
`UserError` that names the file and what is wrong, and ends with ``advice``.
"""

import gzip
import json
import os
import re
import stat
import zlib
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from .errors import UserError, one_line

Model = TypeVar("Model")
#: limit of bytes in a description such as `config.json`; usual ones have some hundred
DESCRIPTION = 1 << 20
#: limit of bytes in a vocabulary, subword model or list of merges; usual ones have a million
VOCABULARY = 1 << 26
ADVICE = "give another file"


def check_regular(
    path: str | os.PathLike[str],
    most: int | None = None,
    advice: str = ADVICE,
    descriptor: int | None = None,
) -> None:
    """Refuse a file that is not regular or has more than ``most`` bytes, before a library opens it.

    Args:
        descriptor: that of the file, if it is open
    """
    try:
        status = os.stat(path if descriptor is None else descriptor)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error, advice) from error
    name = one_line(str(path))
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise UserError(f"{name} is {kind}: {advice}")
    if most is not None and status.st_size > most:
        raise UserError(
            f"{name} is too large: it has {status.st_size:,} bytes, and may have {most:,}; {advice}"
        )


def open_regular(
    path: str | os.PathLike[str], most: int | None = None, advice: str = ADVICE
) -> BinaryIO:
    """Open a regular file of at most ``most`` bytes (None: no limit), to read bytes."""
    check_regular(path, most, advice)  # even opening some devices has effects
    try:
        # The file may have been replaced meanwhile; O_NONBLOCK opens a pipe without a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, error, advice) from error
    try:
        check_regular(path, most, advice, descriptor)
    except UserError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def open_text(
    path: str | os.PathLike[str],
    most: int | None = VOCABULARY,
    advice: str = ADVICE,
    newline: str | None = None,
) -> TextIOWrapper:
    """Open a regular file to read UTF-8; ``newline`` is that of `open`."""
    return TextIOWrapper(open_regular(path, most, advice), encoding="utf-8", newline=newline)


def read_bytes(path: Path, most: int, advice: str = ADVICE) -> bytes:
    """The content of a regular file, unpacked if its name ends in ``.gz``."""
    with open_regular(path, most, advice) as file:
        try:
            source: Any = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            content = source.read(most + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{path} is truncated or damaged ({error}): {advice}") from error
        except OSError as error:
            raise _unreadable(path, error, advice) from error
    if len(content) > most:
        raise UserError(f"{path} is too large: it may have {most:,} bytes; {advice}")
    return content


def read_json(path: Path, most: int = DESCRIPTION, advice: str = ADVICE) -> Any:
    """The value in a JSON file of at most 200 levels and of integers of at most 4,300 digits."""
    from pydantic_core import from_json

    try:
        return from_json(read_bytes(path, most, advice).removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not valid JSON ({one_line(str(error))}): {advice}") from error


def read_object(
    path: Path, model: type[Model], most: int = DESCRIPTION, advice: str = ADVICE
) -> Model:
    """The object in a JSON file, validated by the pydantic ``model``."""
    value = read_json(path, most, advice)
    if not isinstance(value, dict):
        raise UserError(f"{path} is not a JSON object: {advice}")
    return validated(value, model, f"{path}: ", advice)


def validated(value: Any, model: type[Model], where: str, advice: str = ADVICE) -> Model:
    """The value, validated by the pydantic ``model``; errors begin with ``where``."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(model).validate_python(value)
    except ValidationError as error:
        raise UserError(f"{where}{broken_rule(error)}; {advice}") from error


def broken_rule(error: Any) -> str:
    """The first fault of a pydantic ``ValidationError`` on one line: key, rule and value."""
    fault = error.errors(include_url=False)[0]
    key = one_line(".".join(map(str, fault["loc"])))
    if fault["type"] == "missing":
        return f"{key} is missing"
    rule = re.sub(r"^\w+ should", "must", fault["msg"].removeprefix("Value error, "))
    rule = re.sub(r"a valid dictionary or instance of \w+", "an object", rule)
    try:
        value = json.dumps(fault["input"])
    except (TypeError, ValueError):  # such as a number of too many digits
        value = f"a {type(fault['input']).__name__}"
    value = value if len(value) < 80 else f"{value[:76]} ..."
    return f"{key} {one_line(rule)}, but is {value}".lstrip()


def _unreadable(
    path: str | os.PathLike[str], error: OSError | ValueError, advice: str
) -> UserError:
    reason = getattr(error, "strerror", None) or str(error)
    return UserError(f"{one_line(str(path))} can't be read: {reason}; {advice}")
