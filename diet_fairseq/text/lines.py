r"""Lines of text: only a newline ends a line.

Python's ``str.splitlines`` and fairseq's and sentencepiece's word splitting split text at more
places (U+0085, U+2028, form feed ...). Such characters stand inside lines of the WMT sets, so
lines are read as bytes up to ``\n``, and `whitespace.normalise` turns every odd space into a plain
one before another program sees it.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from ..atomic import written
from ..errors import UserError


def read_lines(path: Path, keep_mark: bool = False) -> Iterator[str]:
    """The lines of a text file, gzipped where its name ends in ``.gz``, without their ends.

    Args:
        keep_mark: keep a byte-order mark, which is no text, but which a published score of a file
            may have counted

    Raises:
        UserError: the file can't be read, is cut, empty or not UTF-8; the line is named
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8").rstrip("\r\n")
                yield text if number > 1 or keep_mark else text.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise UserError(
            f"{path}, line {number}: byte {error.start + 1} (0x{byte:02x}) is not UTF-8: convert "
            "the file, or leave the line out, with its translation if it has one"
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{path} is truncated or damaged after line {number} ({error}): fetch it again"
        ) from error
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from error
    if number == 0:
        raise UserError(f"{path} is empty")


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Line n of the one file with line n of the other.

    Raises:
        UserError: the files differ in length, or `read_lines` refuses one
    """
    sides = read_lines(source), read_lines(target)
    for number, (one, other) in enumerate(zip_longest(*sides)):
        if one is None or other is None:
            longer = number + 1 + sum(1 for side in sides for _ in side)
            counts = (number, longer) if one is None else (longer, number)
            raise UserError(
                f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}: they differ in "
                f"length from line {number + 1:,} on, so earlier lines may be shifted, too"
            )
        yield one, other


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write them, and return how many there were."""
    number = 0
    with written(path) as file:
        for line in lines:
            file.write(line + "\n")
            number += 1
    return number
