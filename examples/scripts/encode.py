"""Encode text as subwords separated by spaces, line by line."""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_lines, read_pairs, write_lines
from diet_fairseq.text.subwords import FILES
from diet_fairseq.text.tokenizer import Tokenizer, encode_lines

#: subwords of a line; fairseq's transformers have positions for 1,024
LONGEST = 1000


def shortened(lines: Iterable[str], name: str) -> Iterator[str]:
    """The lines, cut at the end where they are too long for a model."""
    cut = 0
    for line in lines:
        tokens = line.split(" ")
        cut += len(tokens) > LONGEST
        yield " ".join(tokens[:LONGEST])
    if cut:
        print(f"{name}: {cut} lines have more than {LONGEST:,} subwords and were cut there")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=FILES)
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--text", nargs=3, action="append", required=True, metavar=("LANGUAGE", "INPUT", "OUTPUT")
    )
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    for _ in read_pairs(*(Path(text[1]) for text in args.text)):  # of one length, and UTF-8
        pass
    for language, source, output in args.text:
        tokenizer = Tokenizer(args.kind, args.model, language, args.kind == "subword_nmt")
        coded = encode_lines(tokenizer, read_lines(Path(source)), args.workers)
        write_lines(Path(output), shortened(coded, source))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
