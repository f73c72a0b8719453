"""Select longer sentences from Tatoeba: how `data/` was made.

    python select_pairs.py FOLDER_OF_TATOEBA data

The pairs have 10 to 25 words a side, and any words. The sentences of the demo have at most nine. No
test sentence occurs in training, in either language.
"""

import gzip
import random
import re
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_pairs
from diet_fairseq.text.whitespace import normalise

#: words of a sentence
LEAST, MOST = 10, 25
#: split -> number of pairs
SIZES = {"valid": 150, "test": 500, "train": 10000}

Pair = tuple[str, str]


def read_long_pairs(folder: Path, split: str) -> list[Pair]:
    files = (folder / f"{split}.{lang}.gz" for lang in ("en", "de"))
    pairs = ((normalise(english), normalise(german)) for english, german in read_pairs(*files))
    return [
        pair
        for pair in pairs
        if all(LEAST <= len(re.findall(r"\w+", line)) <= MOST for line in pair)
    ]


def write(folder: Path, split: str, pairs: Iterable[Pair]) -> None:
    for lang, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in lines)
        content = gzip.compress(text.encode(), 9, mtime=0)
        (folder / f"{split}.{lang}.gz").write_bytes(content)


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tatoeba", type=Path, help="folder with train, valid and test")
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    held_out: set[str] = set()
    for split, size in SIZES.items():
        first: dict[str, Pair] = {}
        for pair in read_long_pairs(args.tatoeba, split):
            if held_out.isdisjoint(pair):
                first.setdefault(pair[0], pair)  # one translation of a sentence
        selection = random.Random(1).sample([*first.values()], size)
        held_out.update(line for pair in selection for line in pair)
        write(args.output, split, selection)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
