"""White space, normalised in the same way for every text that a model reads."""

import re

# White space of any kind, and control characters.
WHITE_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def normalise(line: str) -> str:
    """The line with single plain spaces between its words, and no control characters."""
    return WHITE_SPACE.sub(" ", line).strip(" ")
