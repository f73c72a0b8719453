"""JSON files, gzipped or not; one that is cut is refused."""

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
