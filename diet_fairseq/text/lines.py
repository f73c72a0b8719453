r"""Text files with lines that end only at a newline.

Python's ``str.splitlines``, fairseq and sentencepiece split at further characters (U+0085, U+2028,
form feed ...), which occur inside lines of the WMT sets. So lines are read as bytes up to ``\n``,
and `whitespace.normalise` replaces these characters before other programs read them.
"""

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import atomic_file

#: bytes that `read_line_blocks` reads at once: enough lines for batches of similar length
BLOCK_BYTES = 1 << 17


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file without line ends; a file ``*.gz`` is gzipped.

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
            "the file, or remove the line (and its translation)"
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


def read_line_blocks(file: Any, name: str, max_characters: int) -> Iterator[list[str]]:
    """The lines of an open file or pipe in blocks, each block as soon as it arrives.

    A block has the lines that end within `BLOCK_BYTES` bytes, or fewer from a pipe or a terminal. A
    byte-order mark at the beginning is removed.

    Args:
        file: a file with a descriptor, at its beginning
        name: its name, for errors
        max_characters: limit of characters in a line

    Raises:
        UserError: a line is not UTF-8 or too long; all lines before it were yielded
    """
    max_bytes = 4 * max_characters + 4  # with a byte-order mark and a carriage return
    number, rest, is_end = 0, b"", False
    while not is_end:
        block = os.read(file.fileno(), BLOCK_BYTES)
        is_end = not block
        *lines, rest = (rest + block).split(b"\n")
        if rest and (is_end or len(rest) > max_bytes):
            lines.append(rest)
        texts: list[str] = []
        fault = ""
        for line in lines:
            number += 1
            encoding = "utf-8-sig" if number == 1 else "utf-8"
            errors = "strict" if len(line) <= max_bytes else "replace"  # may end within a character
            try:
                text = line.removesuffix(b"\r").decode(encoding, errors)
            except UnicodeDecodeError as error:
                byte = f"byte {error.start + 1} (0x{error.object[error.start]:02x})"
                fault = f"line {number}: {byte} is not UTF-8: convert the text"
                break
            if len(text) > max_characters:
                fault = (
                    f"line {number} has more than {max_characters:,} characters: split it into "
                    "lines, or raise --max-characters"
                )
                break
            texts.append(text)
        if texts:
            yield texts
        if fault:
            raise UserError(f"{name}, {fault}; all lines before it are translated")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file that appears when all lines are written."""
    with atomic_file(path) as file:
        file.writelines(f"{line}\n" for line in lines)
