"""Sentence boundaries, at which lines that are too long are cut.

One regular expression serves all languages, without lists of abbreviations: a cut after "Dr." costs
little, and only lines beyond the model's limit are cut.
"""

import re
from collections.abc import Iterator

#: a mark that ends a sentence, closing quotes and brackets, and a space, which marks of scripts
#: without spaces don't need
END = re.compile(r"[.!?…։؟।॥](?:[\"'’”»›)\]]*)(?= )|[。！？｡](?:[」』”’）】]*)")


def sentences(line: str) -> Iterator[str]:
    """The sentences of a line, without the spaces between them."""
    start = 0
    for end in END.finditer(line):
        sentence = line[start : end.end()].strip(" ")
        start = end.end()
        if sentence:
            yield sentence
    if rest := line[start:].strip(" "):
        yield rest
