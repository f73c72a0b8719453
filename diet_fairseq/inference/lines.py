"""Lines of a file or a pipe, in windows, as soon as they arrive."""

import os
import select
from collections.abc import Iterator
from typing import Any

from ..errors import UserError

#: lines in a window: enough that its batches hold lines of similar length
WINDOW = 2000
BLOCK = 1 << 16


def windows(file: Any, name: str, longest: int, size: int = WINDOW) -> Iterator[list[str]]:
    r"""The lines of an open file, without their ends; a line ends at ``\n`` and nowhere else.

    A window ends early where a pipe or a terminal has no further line yet. A byte-order mark at the
    beginning is removed.

    Args:
        file: a file with a descriptor, at its beginning
        longest: the limit of characters in a line
        size: lines in a window

    Raises:
        UserError: a line is not UTF-8 or too long; all lines before it were yielded
    """
    window: list[str] = []
    number, most = 0, 4 * longest + 3  # bytes, with a byte-order mark
    try:
        for line in _raw_lines(file.fileno(), most):
            if line is not None:
                number += 1
                encoding = "utf-8-sig" if number == 1 else "utf-8"
                errors = "strict" if len(line) <= most else "replace"  # it may be cut
                text = line.decode(encoding, errors)
                if len(text) > longest:
                    if window:
                        yield window
                    raise UserError(
                        f"{name}, line {number} has more than {longest:,} characters: split it "
                        "into lines, or raise --max-characters; all lines before it are translated"
                    )
                window.append(text)
            if window and (line is None or len(window) == size):
                yield window
                window = []
    except UnicodeDecodeError as error:
        if window:
            yield window
        raise UserError(
            f"{name}, line {number}: byte {error.start + 1} (0x{error.object[error.start]:02x}) is "
            "not UTF-8: convert the text; all lines before it are translated"
        ) from error
    if window:
        yield window


def _raw_lines(descriptor: int, most: int) -> Iterator[bytes | None]:
    """Lines without their ends, and None where the next is not there yet.

    A line of more than ``most`` bytes is the last, and may be cut.
    """
    pieces: list[bytes] = []  # of an incomplete line
    while block := os.read(descriptor, BLOCK):
        first, *rest = block.split(b"\n")
        pieces.append(first)
        for piece in rest:
            yield b"".join(pieces).removesuffix(b"\r")
            pieces = [piece]
        if sum(map(len, pieces)) > most + 1:  # and a carriage return
            break
        if not select.select([descriptor], [], [], 0)[0]:
            yield None
    if any(pieces):
        yield b"".join(pieces).removesuffix(b"\r")
