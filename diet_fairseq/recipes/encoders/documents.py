"""Documents in files of text: their lines, with an empty one between two documents.

`lines_of` and all after it keep one form: an empty line stands between two documents, never first,
never last, never twice.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...text.whitespace import normalise
from ..common.stages import fingerprint
from ..common.text import read_lines


@dataclass(frozen=True)
class Source:
    """A file, and how the ends of documents are marked in it."""

    path: Path
    wikitext: bool = False
    lines_per_document: int | None = None

    def fingerprint(self) -> list[Any]:
        """Whether a stage was made from this file, read in this way."""
        reading = "wikitext" if self.wikitext else self.lines_per_document
        return [*fingerprint(self.path), reading]

    def lines(self) -> Iterator[str]:
        """Normalised lines."""
        lines = map(normalise, read_lines(self.path))
        if self.wikitext:
            return squeezed(wikitext(lines))
        if self.lines_per_document and "" not in squeezed(map(normalise, read_lines(self.path))):
            return squeezed(cut(lines, self.lines_per_document))
        return squeezed(lines)


def squeezed(lines: Iterable[str]) -> Iterator[str]:
    """The lines, with single empty lines between them and none at the ends."""
    begun = empty = False
    for line in lines:
        if line:
            if begun and empty:
                yield ""
            yield line
            begun = True
        empty = not line


def cut(lines: Iterable[str], number: int) -> Iterator[str]:
    """Add an empty line after every so many lines that are not empty."""
    for count, line in enumerate(filter(None, lines), 1):
        yield line
        if count % number == 0:
            yield ""


def wikitext(lines: Iterable[str]) -> Iterator[str]:
    """WikiText: a title, ``= Title =``, begins a document; an empty line separates paragraphs only.

    Headings lose their signs, and hyphens, commas and points inside words (``@-@``) the marks that
    the tokenisation gave them. The rest stays as it is, ``<unk>`` for rare words, too.
    """
    for line in lines:
        if re.fullmatch("= .+ =", line):
            if not line.startswith("= = "):
                yield ""
            line = line.strip("= ")
        if line:
            yield re.sub(r" @([-,.])@ ", r"\1", line)


class Cleaner:
    """Joins sources, drops repeated lines and empty documents, and counts.

    Counts: lines ``read``, ``repeated`` and ``kept``, ``documents``, ``words``.
    """

    def __init__(self, lower: bool = False) -> None:
        self.lower = lower
        self.counts = Counter(dict.fromkeys(["read", "repeated", "kept", "documents", "words"], 0))
        # 16 bytes stand for a line: some 100 MB for a million of them, the one thing that grows.
        self._seen: set[bytes] = set()

    def __call__(self, sources: Iterable[Iterable[str]]) -> Iterator[str]:
        return squeezed(line for lines in sources for line in self._lines(lines))

    def _lines(self, lines: Iterable[str]) -> Iterator[str]:
        inside = False
        for line in lines:
            line = line.lower() if self.lower else line
            if not line:
                inside = False
            elif self._repeated(line):
                self.counts.update(("read", "repeated"))
                continue
            else:
                self.counts.update(("read", "kept") if inside else ("read", "kept", "documents"))
                self.counts["words"] += line.count(" ") + 1
                inside = True
            yield line
        yield ""

    def _repeated(self, line: str) -> bool:
        digest = hashlib.blake2b(line.encode(), digest_size=16).digest()
        if digest in self._seen:
            return True
        self._seen.add(digest)
        return False


def held_out(documents: int, share: float) -> set[int]:
    """The numbers of the documents to validate with: at least one, and always the same."""
    number = min(max(1, round(documents * share)), documents - 1)
    return set(random.Random(1).sample(range(documents), number))


def numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, each with the number of its document."""
    document = 0
    for line in lines:
        if line:
            yield document, line
        else:
            document += 1


#: the end of a sentence in a subword
END = re.compile(r"[.!?…]['\"”’»)\]]*$|[。！？]$")
#: what SentencePiece puts before the first subword of a word, subword-nmt after all but the last
FIRST, CONTINUED = "\u2581", "@@"


def parted(line: str, longest: int) -> Iterator[str]:
    """Split a line of subwords into parts no longer than ``longest``.

    A part ends where a sentence does, else where a word does, if that is in its second half.
    """
    pieces = line.split(" ")
    while len(pieces) > longest:
        near = range(longest, longest // 2, -1)
        words = [n for n in near if not splits_word(pieces[n - 1], pieces[n], FIRST in line)]
        ends = [n for n in near if END.search(pieces[n - 1]) and n in words]
        end = next(iter(ends or words), longest)
        yield " ".join(pieces[:end])
        pieces = pieces[end:]
    yield " ".join(pieces)


def splits_word(before: str, after: str, sentencepiece: bool) -> bool:
    if before.endswith(("。", "！", "？")):
        return False
    return not after.startswith(FIRST) if sentencepiece else before.endswith(CONTINUED)
