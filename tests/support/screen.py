"""What a terminal shows of the text that programs write to it."""

import re
from collections.abc import Iterator

#: cursor up, erase to the end of the line, erase to the end of the screen; or one character
PART = re.compile(r"\x1b\[(\d*)([AKJ])|(.)", re.DOTALL)


class Screen:
    """The lines of a terminal that is as high and wide as needed."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = 0

    def feed(self, text: str) -> Iterator[list[str]]:
        """Show text; after each return of the cursor, the lines without the blank ones."""
        for _, code, char in PART.findall(text):
            line = self.lines[self.row]
            if code == "A":
                self.row -= 1
            elif code in ("K", "J"):
                self.lines[self.row] = line[: self.column]
                if code == "J":
                    del self.lines[self.row + 1 :]
            elif char == "\n":
                self.row += 1
                if self.row == len(self.lines):
                    self.lines.append("")
            elif char == "\r":
                self.column = 0
                yield [line for line in self.lines if line.strip()]
            else:
                padded = line.ljust(self.column)
                self.lines[self.row] = padded[: self.column] + char + padded[self.column + 1 :]
                self.column += 1
