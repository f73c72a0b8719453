"""JSON files: published ones, gzipped or not, and our own; one that is cut is refused."""

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from ...errors import UserError


def read_json(path: Path) -> Any:
    """What is in the file.

    Raises:
        UserError: it can't be read, is no UTF-8, or no JSON; the line is named
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


def kept(path: Path, again: str, /, **needed: type) -> dict[str, Any]:
    """What one of our commands left in the file for the next one.

    Args:
        path: of the file
        again: what makes a good one, for the error
        needed: names that it must have, and the types of their values

    Raises:
        UserError: it is not there, cut, or lacks some of this
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError("no JSON object")
        for name, kind in needed.items():
            if not isinstance(found.get(name), kind):
                raise TypeError(f"{name} is {json.dumps(found.get(name))[:80]}")
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}): {again}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): {again}") from error
    return found
