"""Clean documents, hold some out, and sample languages: files of text to train and valid.

An empty line stands between two documents. A line that occurred before is left out, white space is
normalised. Text of several languages is read in proportion to its lines to the power of the
smoothing, so that small languages are seen more often than their share.
"""

import hashlib
import json
import random
import re
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from diet_fairseq.atomic import atomic_file
from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.text.lines import read_lines, write_lines
from diet_fairseq.text.sampling import copies
from diet_fairseq.text.whitespace import normalise

Document = list[str]


def documents(path: Path, wikitext: bool, lines_per_document: int | None) -> Iterator[Document]:
    """The documents of a file; one without empty lines is cut every ``lines_per_document``."""
    lines: Iterator[str] = map(normalise, read_lines(path))
    if wikitext:
        lines = read_wikitext(lines)
    elif lines_per_document and all(map(normalise, read_lines(path))):
        lines = cut(lines, lines_per_document)
    document: Document = []
    for line in lines:
        if line:
            document.append(line)
        elif document:
            yield document
            document = []
    if document:
        yield document


def cut(lines: Iterable[str], number: int) -> Iterator[str]:
    """An empty line after every so many lines."""
    for count, line in enumerate(lines, 1):
        yield line
        if count % number == 0:
            yield ""


def read_wikitext(lines: Iterable[str]) -> Iterator[str]:
    """WikiText: a title, ``= Title =``, begins a document; an empty line ends a paragraph only.

    Headings lose their signs, and hyphens, commas and points inside words (``@-@``) their marks.
    """
    for line in lines:
        if re.fullmatch("= .+ =", line):
            if not line.startswith("= = "):
                yield ""
            line = line.strip("= ")
        if line:
            yield re.sub(r" @([-,.])@ ", r"\1", line)


class Cleaner:
    """Drops lines that occurred before, and documents without any other; counts."""

    def __init__(self, lower: bool) -> None:
        self.lower = lower
        self.counts = Counter(dict.fromkeys(["read", "repeated", "kept", "documents", "words"], 0))
        # 16 bytes stand for a line: some 100 MB for a million of them.
        self._seen: set[bytes] = set()

    def __call__(self, documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            lines = [line.lower() for line in document] if self.lower else document
            kept = [line for line in lines if self._is_new(line)]
            self.counts.update(read=len(lines), repeated=len(lines) - len(kept), kept=len(kept))
            if kept:
                self.counts.update(documents=1, words=sum(line.count(" ") + 1 for line in kept))
                yield kept

    def _is_new(self, line: str) -> bool:
        digest = hashlib.blake2b(line.encode(), digest_size=16).digest()
        is_new = digest not in self._seen
        self._seen.add(digest)
        return is_new


def held_out(number: int, share: float) -> set[int]:
    """Places of the documents to validate with: at least one, always the same."""
    if number < 2:
        raise UserError(
            "the text must have two documents or more, one to validate with: put empty lines "
            "between documents, or set lines_per_document"
        )
    size = min(max(1, round(number * share)), number - 1)
    return set(random.Random(1).sample(range(number), size))


def sampled(
    train: list[tuple[str, Document]], smoothing: float
) -> tuple[list[Document], dict[str, int]]:
    """Documents of small languages several times, of large ones only some; lines by language."""
    times = list(copies([language for language, _ in train], lines_by_language(train), smoothing))
    # Turn by turn, so that no document stands beside its copy.
    turns = [
        one
        for turn in range(max(times))
        for one, count in zip(train, times, strict=True)
        if count > turn
    ]
    return [document for _, document in turns], lines_by_language(turns)


def lines_by_language(texts: Iterable[tuple[str, Document]]) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for language, document in texts:
        sizes[language] += len(document)
    return dict(sizes)


def joined(documents: Iterable[Document]) -> Iterator[str]:
    """Lines, with an empty one between two documents."""
    for number, document in enumerate(documents):
        if number:
            yield ""
        yield from document


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="gets train, valid and counts.json")
    parser.add_argument(
        "--text", nargs="+", action="append", required=True, help="LANGUAGE FILE..."
    )
    parser.add_argument("--wikitext", nargs="*", default=[], help="those of the files that are")
    parser.add_argument("--lines-per-document", type=int)
    parser.add_argument("--lower", action="store_true")
    parser.add_argument("--valid-share", type=float, default=0.005)
    parser.add_argument("--smoothing", type=float, help="several languages: exponent of their size")
    args = parser.parse_args()
    cleaner = Cleaner(args.lower)
    texts: list[tuple[str, Document]] = []
    for language, *files in args.text:
        for file in files:
            read = documents(Path(file), file in args.wikitext, args.lines_per_document)
            texts += ((language, document) for document in cleaner(read))
    places = held_out(len(texts), args.valid_share)
    train = [text for place, text in enumerate(texts) if place not in places]
    counts: dict[str, object] = dict(cleaner.counts)
    kept = [document for _, document in train]
    if args.smoothing is not None:
        kept, counts["sampled"] = sampled(train, args.smoothing)
    args.folder.mkdir(parents=True, exist_ok=True)
    write_lines(args.folder / "train", joined(kept))
    write_lines(args.folder / "valid", joined(texts[place][1] for place in sorted(places)))
    with atomic_file(args.folder / "counts.json") as file:
        json.dump(counts, file, indent=1)
    print(json.dumps(counts))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
