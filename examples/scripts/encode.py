"""Encode text as subwords separated by spaces, line by line.

A line that is too long for a model is cut at its end, or with ``--split`` becomes several: it is
split at the ends of sentences where there are any.
"""

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import chain, islice
from multiprocessing import Pool
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_lines, read_pairs, write_lines
from diet_fairseq.text.subwords import SUBWORD_FILES
from diet_fairseq.text.tokenizer import Tokenizer

CHUNK = 10_000  # lines
cached_tokenizer = cache(Tokenizer)  # one in each process


def encode(lines: list[str], arguments: tuple, longest: int, split: bool) -> list[list[str]]:
    """Tokens of the lines, or of their parts without loss; an empty line stays empty."""
    tokenizer = cached_tokenizer(*arguments)
    if not split:
        return [tokenizer.encode(line) for line in lines]
    return [part for line in lines for part in (tokenizer.split(line, longest) or [[]])]


def map_lines(work: partial, lines: Iterable[str], workers: int) -> Iterator[list[str]]:
    """The joined results of ``work`` for all chunks of lines, in order and in bounded memory."""
    lines = iter(lines)
    chunks = iter(lambda: list(islice(lines, CHUNK)), [])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the signal by which Pool ends its workers
    with Pool(workers, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the pool
        # Pool.imap would read all lines at once, so one chunk per worker is read at a time.
        while batch := list(islice(chunks, workers)):
            yield from chain.from_iterable(pool.map(work, batch, chunksize=1))


def shortened(lines: Iterable[list[str]], longest: int, name: str) -> Iterator[str]:
    """The lines, cut at the end where they are too long."""
    cut = 0
    for tokens in lines:
        cut += len(tokens) > longest
        yield " ".join(tokens[:longest])
    if cut:
        print(f"{name}: {cut} lines have more than {longest:,} subwords and were cut there")


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=SUBWORD_FILES)
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
        arguments = (args.kind, args.model, language, args.kind == "subword_nmt")
        work = partial(encode, arguments=arguments, longest=args.longest, split=args.split)
        encoded = map_lines(work, read_lines(Path(source)), args.workers)
        write_lines(Path(output), shortened(encoded, args.longest, source))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
