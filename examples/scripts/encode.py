"""Encode text as subwords separated by spaces, line by line.

A line that is too long for a model is cut at its end, or with ``--split`` becomes several: it is
split at the ends of sentences where there are any.
"""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_lines, read_pairs, write_lines
from diet_fairseq.text.parallel import map_lines
from diet_fairseq.text.subwords import FILES
from diet_fairseq.text.tokenizer import Tokenizer, encode_lines

cached_tokenizer = cache(Tokenizer)  # one in each process


def shortened(lines: Iterable[str], longest: int, name: str) -> Iterator[str]:
    """The lines, cut at the end where they are too long."""
    cut = 0
    for line in lines:
        tokens = line.split(" ")
        cut += len(tokens) > longest
        yield " ".join(tokens[:longest])
    if cut:
        print(f"{name}: {cut} lines have more than {longest:,} subwords and were cut there")


def split_lines(lines: list[str], arguments: tuple, longest: int) -> list[str]:
    """Lines of at most ``longest`` subwords, without loss; an empty line stays empty."""
    tokenizer = cached_tokenizer(*arguments)
    return [" ".join(part) for line in lines for part in (tokenizer.split(line, longest) or [[]])]


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=FILES)
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--text", nargs=3, action="append", required=True, metavar=("LANGUAGE", "INPUT", "OUTPUT")
    )
    # fairseq's transformers have positions for 1,024.
    parser.add_argument("--longest", type=int, default=1000, help="subwords of a line")
    parser.add_argument("--split", action="store_true", help="split long lines, without loss")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    if len(args.text) == 2:  # line n belongs to line n
        for _ in read_pairs(*(Path(text[1]) for text in args.text)):
            pass
    for language, source, output in args.text:
        tokenizer = Tokenizer(args.kind, args.model, language, args.kind == "subword_nmt")
        lines = read_lines(Path(source))
        if args.split:
            options = (tokenizer.arguments, args.longest)
            encoded = map_lines(split_lines, lines, *options, workers=args.workers)
        else:
            encoded = shortened(encode_lines(tokenizer, lines, args.workers), args.longest, source)
        write_lines(Path(output), encoded)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
