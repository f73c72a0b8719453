"""Encode documents as subwords; lines that are too long for a sample are split, not cut.

They are split at the ends of sentences where there are any; an empty line still stands between two
documents.
"""

from argparse import ArgumentParser
from functools import cache
from pathlib import Path

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.text.lines import read_lines, write_lines
from diet_fairseq.text.parallel import map_lines
from diet_fairseq.text.subwords import FILES
from diet_fairseq.text.tokenizer import Tokenizer

#: <s> and </s>, which a sample has besides its lines' subwords
SPECIAL = 2

tokenizer_of = cache(Tokenizer)  # one in each process


def encode(lines: list[str], arguments: tuple, longest: int) -> list[str]:
    """Lines of subwords, of which none has more than ``longest``."""
    tokenizer = tokenizer_of(*arguments)
    coded = []
    for line in lines:
        parts = tokenizer.split(line, longest) if line else [[]]
        coded += [" ".join(part) for part in parts]
    return coded


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=FILES)
    parser.add_argument("model", type=Path)
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--language", default="en", help="for the rules of Moses (%(default)s)")
    parser.add_argument("--length", type=int, required=True, help="tokens of a sample")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    if args.length <= SPECIAL:
        raise UserError(f"--length {args.length} must be above {SPECIAL}")
    tokenizer = (args.kind, args.model, args.language, args.kind == "subword_nmt")
    longest = args.length - SPECIAL
    lines = read_lines(args.input)
    write_lines(args.output, map_lines(encode, lines, tokenizer, longest, workers=args.workers))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
