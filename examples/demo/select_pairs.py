"""Select sentences from Tatoeba by their number of words: how `data/` of two examples was made.

    python select_pairs.py FOLDER_OF_TATOEBA data --words 1 9 --frequent 2000 3000
    python select_pairs.py FOLDER_OF_TATOEBA data --words 10 25 --valid 150 --test 500 --train 10000

No validation or test sentence occurs in training, in either language.
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

Pair = tuple[str, str]


def find_words(line: str) -> list[str]:
    return re.findall(r"\w+", line.lower())


def read(folder: Path, split: str) -> list[Pair]:
    files = (folder / f"{split}.{lang}.gz" for lang in ("en", "de"))
    return [(normalise(english), normalise(german)) for english, german in read_pairs(*files)]


def write(folder: Path, split: str, pairs: Iterable[Pair]) -> None:
    for lang, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in lines)
        content = gzip.compress(text.encode(), 9, mtime=0)
        (folder / f"{split}.{lang}.gz").write_bytes(content)


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tatoeba", type=Path, help="folder with train, valid and test")
    parser.add_argument("output", type=Path)
    parser.add_argument(
        "--words", type=int, nargs=2, required=True, metavar=("LEAST", "MOST"), help="of a sentence"
    )
    parser.add_argument(
        "--frequent", type=int, nargs=2, metavar=("ENGLISH", "GERMAN"),
        help="number of the most frequent words of training that sentences consist of (any words)",
    )  # fmt: skip
    parser.add_argument("--valid", type=int, default=500, help="number of pairs (%(default)s)")
    parser.add_argument("--test", type=int, default=1000, help="number of pairs (%(default)s)")
    parser.add_argument("--train", type=int, help="number of pairs (all)")
    args = parser.parse_args()
    frequent: list[set[str]] = []
    if args.frequent:
        for lines, size in zip(
            zip(*read(args.tatoeba, "train"), strict=True), args.frequent, strict=True
        ):
            counts = Counter(word for line in lines for word in find_words(line))
            frequent.append({word for word, _ in counts.most_common(size)})

    def fits(pair: Pair) -> bool:
        least, most = args.words
        words = [find_words(line) for line in pair]
        is_frequent = all(map(set.issuperset, frequent, words))
        return is_frequent and all(least <= len(line) <= most for line in words)

    held_out: set[str] = set()
    for split in ("valid", "test", "train"):
        pairs = [p for p in filter(fits, read(args.tatoeba, split)) if held_out.isdisjoint(p)]
        if size := getattr(args, split):
            first: dict[str, Pair] = {}
            for pair in pairs:
                first.setdefault(pair[0], pair)
            pairs = random.Random(1).sample([*first.values()], size)
        held_out.update(line for pair in pairs for line in pair)
        write(args.output, split, dict.fromkeys(pairs))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
