"""Normalisation of white space, common to all text that a model reads."""

import re

#: white space of any kind, and control characters
WHITE_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
#: the characters between white space
WORD = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]+")


def normalise(line: str) -> str:
    """The line with single plain spaces between its words, and no control characters."""
    return WHITE_SPACE.sub(" ", line).strip(" ")


def normalise_with_indices(line: str) -> tuple[str, list[int]]:
    """The line as `normalise` returns it, and the index in ``line`` of each of its characters.

    A space has the index of the last character that it replaces.
    """
    indices = [n for word in WORD.finditer(line) for n in range(word.start() - 1, word.end())]
    return normalise(line), indices[1:]  # the first word has no space before it
