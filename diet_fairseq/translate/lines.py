"""Lines of a file or a pipe, in windows, as soon as they arrive."""

import os
from collections.abc import Iterator
from typing import Any

from ..errors import UserError

#: bytes to read at once: enough lines that their batches hold lines of similar length
BLOCK = 1 << 17


def windows(file: Any, name: str, longest: int) -> Iterator[list[str]]:
    r"""The lines of an open file, without their ends; a line ends at ``\n`` and nowhere else.

    A window has the lines that end in a block, of a pipe or a terminal those that have arrived. A
    byte-order mark at the beginning is removed.

    Args:
        file: a file with a descriptor, at its beginning
        longest: the limit of characters in a line

    Raises:
        UserError: a line is not UTF-8 or too long; all lines before it were yielded
    """
    most = 4 * longest + 4  # bytes of a line, with a byte-order mark and a carriage return
    number, rest, is_end = 0, b"", False
    while not is_end:
        block = os.read(file.fileno(), BLOCK)
        is_end = not block
        *lines, rest = (rest + block).split(b"\n")
        if rest and (is_end or len(rest) > most):
            lines.append(rest)
        window: list[str] = []
        fault = ""
        for line in lines:
            number += 1
            encoding = "utf-8-sig" if number == 1 else "utf-8"
            errors = "strict" if len(line) <= most else "replace"  # it may be cut
            try:
                text = line.removesuffix(b"\r").decode(encoding, errors)
            except UnicodeDecodeError as error:
                byte = f"byte {error.start + 1} (0x{error.object[error.start]:02x})"
                fault = f"line {number}: {byte} is not UTF-8: convert the text"
                break
            if len(text) > longest:
                fault = (
                    f"line {number} has more than {longest:,} characters: split it into lines, or "
                    "raise --max-characters"
                )
                break
            window.append(text)
        if window:
            yield window
        if fault:
            raise UserError(f"{name}, {fault}; all lines before it are translated")
