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
from itertools import groupby
from pathlib import Path

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import atomic_file
from diet_fairseq.text.lines import read_lines, write_lines
from diet_fairseq.text.whitespace import normalise

Document = list[str]
#: a document and its language
Text = tuple[str, Document]


def documents(path: Path, is_wikitext: bool, lines_per_document: int | None) -> list[Document]:
    """The documents of a file; one without empty lines is cut every ``lines_per_document``."""
    lines = list(map(normalise, read_lines(path)))
    if is_wikitext:
        lines = list(read_wikitext(lines))
    if lines_per_document and all(lines):
        starts = range(0, len(lines), lines_per_document)
        return [lines[start : start + lines_per_document] for start in starts]
    return [list(group) for has_text, group in groupby(lines, bool) if has_text]


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


def clean(
    documents: Iterable[Document], lower: bool, seen: set[bytes], counts: Counter[str]
) -> Iterator[Document]:
    """Documents without lines that occurred before; ``seen`` and ``counts`` are updated."""
    for document in documents:
        new_lines = []
        for line in document:
            line = line.lower() if lower else line
            digest = hashlib.blake2b(line.encode(), digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)  # some 100 MB for a million lines
                new_lines.append(line)
        repeated = len(document) - len(new_lines)
        counts.update(read=len(document), repeated=repeated, kept=len(new_lines))
        if new_lines:
            counts.update(documents=1, words=sum(line.count(" ") + 1 for line in new_lines))
            yield new_lines


def held_out(number: int, share: float) -> set[int]:
    """Places of the documents to validate with: at least one, always the same."""
    if number < 2:
        raise UserError(
            "the text must have two documents or more, one to validate with: put empty lines "
            "between documents, or set lines_per_document"
        )
    size = min(max(1, round(number * share)), number - 1)
    return set(random.Random(1).sample(range(number), size))


def sample(texts: list[Text], smoothing: float) -> list[Text]:
    """Documents of small languages several times, of large ones only some; the size stays.

    BERT's smoothing is 0.7 (github.com/google-research/bert, multilingual.md).
    """
    draw, sizes = random.Random(1), lines_by_language(texts)
    scale = sum(sizes.values()) / sum(size**smoothing for size in sizes.values())
    times = []
    for language, _ in texts:
        whole, part = divmod(scale * sizes[language] ** (smoothing - 1), 1)
        times.append(int(whole) + (draw.random() < part))
    # Turn by turn, so that no document stands beside its copy.
    return [
        text
        for turn in range(max(times))
        for text, count in zip(texts, times, strict=True)
        if count > turn
    ]


def lines_by_language(texts: Iterable[Text]) -> dict[str, int]:
    return dict(Counter(language for language, document in texts for _ in document))


def write_documents(path: Path, texts: Iterable[Text]) -> None:
    """Lines, with an empty one between two documents."""
    lines = (line for _, document in texts for line in ["", *document])
    next(lines)
    write_lines(path, lines)


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="gets train, valid and counts.json")
    parser.add_argument(
        "--text", nargs="+", action="append", required=True, help="LANGUAGE FILE..."
    )
    parser.add_argument("--wikitext", nargs="*", default=[], help="files in WikiText's format")
    parser.add_argument("--lines-per-document", type=int)
    parser.add_argument("--lower", action="store_true")
    parser.add_argument("--valid-share", type=float, default=0.005)
    parser.add_argument("--valid", nargs="*", default=[], help="files held out, instead of a share")
    parser.add_argument("--smoothing", type=float, help="several languages: exponent of their size")
    args = parser.parse_args()
    seen: set[bytes] = set()
    counts: Counter[str] = Counter()
    texts: list[Text] = []
    for language, *files in [["", *args.valid], *args.text]:
        for file in files:
            content = documents(Path(file), file in args.wikitext, args.lines_per_document)
            texts += ((language, document) for document in clean(content, args.lower, seen, counts))
    in_files = {place for place, (language, _) in enumerate(texts) if not language}
    if args.valid and not in_files:
        raise UserError(
            f"valid must name files with text, but {', '.join(args.valid)} have none: name others"
        )
    places = in_files or held_out(len(texts), args.valid_share)
    train = [text for place, text in enumerate(texts) if place not in places]
    if not train:
        raise UserError("text must have lines that valid lacks, but has none: name other files")
    report: dict[str, object] = dict(counts)
    if args.smoothing is not None:
        train = sample(train, args.smoothing)
        report["sampled"] = lines_by_language(train)
    args.folder.mkdir(parents=True, exist_ok=True)
    write_documents(args.folder / "train", train)
    write_documents(args.folder / "valid", (texts[place] for place in sorted(places)))
    with atomic_file(args.folder / "counts.json") as file:
        json.dump(report, file, indent=1)
    print(json.dumps(report))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
