"""Lines of a file or a pipe, as soon as they arrive, some thousand at a time."""

import os
import select
from collections.abc import Iterator
from typing import Any

from ..errors import UserError

#: lines that are translated together, so that batches hold lines of like length
WINDOW = 2000
BLOCK = 1 << 16


def windows(file: Any, name: str, longest: int, size: int = WINDOW) -> Iterator[list[str]]:
    r"""The lines of an open file, without their ends; a line ends at ``\n`` and nowhere else.

    Lines of a pipe or a terminal are not held back until more come. A byte-order mark at the
    beginning is no text.

    Args:
        file: has a descriptor, and nothing was read of it
        longest: characters that a line may have
        size: lines in a window

    Raises:
        UserError: a line is not UTF-8 or too long; all lines before it were yielded
    """
    waiting: list[str] = []
    number = 0
    most = 4 * longest + 3  # bytes, with a byte-order mark
    for line in _raw_lines(file.fileno(), most):
        if line is None:
            if waiting:
                yield waiting
                waiting = []
            continue
        number += 1
        try:
            text = line.decode("utf-8") if len(line) <= most else ""
        except UnicodeDecodeError as error:
            if waiting:
                yield waiting
            raise UserError(
                f"{name}, line {number}: byte {error.start + 1} (0x{line[error.start]:02x}) is not "
                "UTF-8: convert the text; all lines before it are translated"
            ) from error
        text = text.removeprefix("\ufeff") if number == 1 else text
        if len(line) > most or len(text) > longest:
            if waiting:
                yield waiting
            raise UserError(
                f"{name}, line {number} has more than {longest:,} characters: split it into lines, "
                "or raise --max-characters; all lines before it are translated"
            )
        waiting.append(text)
        if len(waiting) == size:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _raw_lines(descriptor: int, most: int) -> Iterator[bytes | None]:
    """Lines without their ends, and None where the next may take a while.

    A line of more than ``most`` bytes is the last, and may be cut.
    """
    pieces: list[bytes] = []  # of a line whose end was not read yet
    while block := os.read(descriptor, BLOCK):
        first, *more = block.split(b"\n")
        pieces.append(first)
        for piece in more:
            yield b"".join(pieces).removesuffix(b"\r")
            pieces = [piece]
        if sum(map(len, pieces)) > most + 1:  # and a carriage return
            break
        if not select.select([descriptor], [], [], 0)[0]:
            yield None
    if any(pieces):
        yield b"".join(pieces).removesuffix(b"\r")
