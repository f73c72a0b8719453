"""Where a line that is too long may be cut: at the ends of its sentences.

By a rule of one line, for which no language's list of abbreviations is needed: whoever cuts after
"Dr." loses little, and only in a line that no model takes as a whole.
"""

import re
from collections.abc import Iterator

#: a mark that ends a sentence, quotes and brackets that close behind it, and then a space; signs of
#: scripts without spaces need none
END = re.compile(r"[.!?…։؟।॥](?:[\"'’”»›)\]]*)(?= )|[。！？｡](?:[」』”’）】]*)")


def sentences(line: str) -> Iterator[str]:
    """The sentences of a line; together they hold all of it but the spaces between them."""
    start = 0
    for found in END.finditer(line):
        sentence = line[start : found.end()].strip(" ")
        start = found.end()
        if sentence:
            yield sentence
    if rest := line[start:].strip(" "):
        yield rest
