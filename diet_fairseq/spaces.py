"""Spaces: what every text that a model reads goes through, in training and after it."""

import re

# White space of any kind, and control characters.
SPACES = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def normalise(line: str) -> str:
    """The line with single plain spaces between its words, and no control characters."""
    return SPACES.sub(" ", line).strip(" ")
