"""Learn one subword model for all languages of a training text."""

from argparse import ArgumentParser
from itertools import chain
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.subwords import (
    FILES,
    learn_sentencepiece,
    learn_subword_nmt,
    lines_to_learn_from,
)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=FILES)
    parser.add_argument("output", type=Path)
    parser.add_argument("--text", nargs="+", type=Path, required=True, help="one file a language")
    parser.add_argument("--languages", nargs="+", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    total = 0
    for path in args.text:
        with open(path, "rb") as file:
            total += sum(1 for _ in file)
    texts = {
        language: lines_to_learn_from(path, total)
        for language, path in zip(args.languages, args.text, strict=True)
    }
    if args.kind == "sentencepiece":
        learn_sentencepiece(args.output, chain.from_iterable(texts.values()), args.size)
    else:
        learn_subword_nmt(args.output, texts, args.size, args.workers)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
