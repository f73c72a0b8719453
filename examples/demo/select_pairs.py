"""Select short sentences of frequent words from Tatoeba: how `data/` was made.

    python select_pairs.py FOLDER_OF_TATOEBA data

Training pairs have at most nine words a side, all among the 2,000 most frequent English and the
3,000 most frequent German words; validation and test sentences are of the same kind. No test
sentence occurs in training, in either language.
"""

import gzip
import random
import re
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_pairs
from diet_fairseq.text.whitespace import normalise

FREQUENT = {"en": 2000, "de": 3000}
MAX_WORDS = 9
SIZES = {"valid": 500, "test": 1000}

Pair = tuple[str, str]


def words(line: str) -> list[str]:
    return re.findall(r"\w+", line.lower())


def pairs(folder: Path, split: str) -> list[Pair]:
    files = (folder / f"{split}.{lang}.gz" for lang in ("en", "de"))
    return [(normalise(english), normalise(german)) for english, german in read_pairs(*files)]


def write(folder: Path, split: str, selection: Iterable[Pair]) -> None:
    for lang, lines in zip(("en", "de"), zip(*selection, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in lines)
        content = gzip.compress(text.encode(), 9, mtime=0)
        (folder / f"{split}.{lang}.gz").write_bytes(content)


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tatoeba", type=Path, help="folder with train, valid and test")
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    train = pairs(args.tatoeba, "train")
    frequent = []
    for side, size in enumerate(FREQUENT.values()):
        counts = Counter(word for pair in train for word in words(pair[side]))
        frequent.append({word for word, _ in counts.most_common(size)})

    def is_simple(pair: Pair) -> bool:
        return all(
            0 < len(words(line)) <= MAX_WORDS and known.issuperset(words(line))
            for line, known in zip(pair, frequent, strict=True)
        )

    held_out: set[str] = set()
    for split, size in SIZES.items():
        first: dict[str, Pair] = {}
        for pair in filter(is_simple, pairs(args.tatoeba, split)):
            if held_out.isdisjoint(pair):
                first.setdefault(pair[0], pair)  # one translation of a sentence
        selection = random.Random(1).sample([*first.values()], size)
        held_out.update(line for pair in selection for line in pair)
        write(args.output, split, selection)
    unique = dict.fromkeys(filter(is_simple, train))
    write(args.output, "train", (pair for pair in unique if held_out.isdisjoint(pair)))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
