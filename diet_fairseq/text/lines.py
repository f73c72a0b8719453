r"""Files of lines, which only a newline ends.

Python's ``str.splitlines``, fairseq and sentencepiece split at further characters (U+0085, U+2028,
form feed ...), which occur inside lines of the WMT sets. So lines are read as bytes up to ``\n``,
and `whitespace.normalise` replaces all such characters before other programs read them.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from ..errors import UserError
from ..files import atomic_file


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, gzipped where its name ends in ``.gz``, without their ends.

    Raises:
        UserError: the file can't be read, or is truncated, empty or not UTF-8
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8").rstrip("\r\n")
                yield text if number > 1 else text.removeprefix("\ufeff")
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
    """Pairs of lines from two files.

    Raises:
        UserError: the files differ in length, or `read_lines` refuses one
    """
    sides = read_lines(source), read_lines(target)
    for number, (first, second) in enumerate(zip_longest(*sides)):
        if first is None or second is None:
            longer = number + 1 + sum(1 for side in sides for _ in side)
            counts = (number, longer) if first is None else (longer, number)
            raise UserError(
                f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}: they differ in "
                f"length from line {number + 1:,} on, so earlier lines may be shifted, too"
            )
        yield first, second


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines; the file appears when all are written."""
    with atomic_file(path) as file:
        file.writelines(f"{line}\n" for line in lines)
