"""Lines of a file or a pipe, as soon as they are there, some thousand at a time."""

import os
import select
from collections.abc import Iterator
from typing import Any

from ..errors import UserError

#: lines that are translated together, so that batches hold lines of like length
WINDOW = 2000
BLOCK = 1 << 16


def windows(file: Any, name: str, size: int = WINDOW) -> Iterator[list[str]]:
    """The lines of an open file, without their ends; a line ends at ``\\n`` and nowhere else.

    What has come from a pipe or a terminal is not held back until more comes. A byte-order mark at
    the beginning is no text.

    :param file: has a descriptor; nothing may have been read of it
    :raises UserError: for what is not UTF-8, when all lines before it were given
    """
    waiting: list[str] = []
    number = 0
    for line in _raw_lines(file.fileno()):
        if line is None:
            if waiting:
                yield waiting
                waiting = []
            continue
        number += 1
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            if waiting:
                yield waiting
            raise UserError(
                f"{name}, line {number}: byte {error.start + 1} (0x{line[error.start]:02x}) is not "
                "UTF-8: convert the text; all lines before it are translated"
            ) from error
        waiting.append(text.removeprefix("\ufeff") if number == 1 else text)
        if len(waiting) == size:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _raw_lines(descriptor: int) -> Iterator[bytes | None]:
    """Lines without their ends, and None where the next may be long in coming."""
    pieces: list[bytes] = []  # of a line whose end was not read yet
    while block := os.read(descriptor, BLOCK):
        first, *more = block.split(b"\n")
        pieces.append(first)
        for piece in more:
            yield b"".join(pieces).removesuffix(b"\r")
            pieces = [piece]
        if not select.select([descriptor], [], [], 0)[0]:
            yield None
    if any(pieces):
        yield b"".join(pieces).removesuffix(b"\r")
