"""Normalisation of white space, common to all text that a model reads."""

import re

#: white space of any kind, and control characters
WHITE_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def normalise(line: str) -> str:
    """The line with single plain spaces between its words, and no control characters."""
    return WHITE_SPACE.sub(" ", line).strip(" ")
