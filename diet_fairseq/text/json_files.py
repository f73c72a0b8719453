"""JSON files: published ones, gzipped or not, and our own; a cut file is refused."""

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from ..errors import UserError


def read_json(path: Path) -> Any:
    """The content of a JSON file, gzipped where its name ends in ``.gz``.

    Raises:
        UserError: the file can't be read, is not UTF-8, or not JSON; the line is named
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            return json.loads(file.read().decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}, line {error.lineno}: this is not JSON, or it is cut ({error.msg}): fetch the "
            "file again"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start + 1} is not UTF-8: fetch it again") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is truncated or damaged ({error}): fetch it again") from error
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deep to be a file of questions") from error


def read_object(path: Path, remedy: str, /, **types: type) -> dict[str, Any]:
    """The object in a JSON file that one of our commands wrote for another.

    Args:
        remedy: what makes a good file, for the error
        types: keys that the object must have, and the types of their values

    Raises:
        UserError: the file is not there, cut, or lacks a key
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError("no JSON object")
        for name, kind in types.items():
            if not isinstance(content.get(name), kind):
                raise TypeError(f"{name} is {json.dumps(content.get(name))[:80]}")
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}): {remedy}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): {remedy}") from error
    return content
