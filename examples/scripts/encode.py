"""Encode text as subwords separated by spaces, line by line.

With the kind ``start`` the subwords, the limits and the language tags are those of a model folder,
whose first text is the source and second text is the target. Text that its vocabulary lacks is
counted.

A line that is too long for a model is cut at its end, or with ``--split`` becomes several: it is
split at the ends of sentences where there are any.
"""

import signal
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import chain, islice
from multiprocessing import Pool
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.languages import match_language
from diet_fairseq.text.lines import read_lines, read_pairs, write_lines
from diet_fairseq.text.subwords import SUBWORD_FILES
from diet_fairseq.text.tokenizer import SPECIAL_SYMBOLS, Tokenizer
from diet_fairseq.translate.model_files import resolve_model
from diet_fairseq.translate.model_json import dictionary_paths, read_model_json

CHUNK = 10_000  # lines
#: value of the first argument that names a model folder
START = "start"
#: value of the first argument that names an encoder's checkpoint
CHECKPOINT = "checkpoint"
#: number of unknown tokens to print
EXAMPLES = 10


@cache  # one in each process
def load_tokenizer(
    kind: str, model: Path, language: str, side: int, lower: bool = False
) -> Tokenizer:
    """The tokenizer of a text; ``side`` is 0 for the source and 1 for the target."""
    if kind == START:
        description = read_model_json(model)
        names = match_language(language, description.all_directions.tags)
        tokenizer = description.tokenizers[side]
        return tokenizer.for_language(names[0]) if len(names) == 1 else tokenizer
    return Tokenizer(kind, model, language, kind == "subword_nmt", lower)


def encode(lines: list[str], arguments: tuple, longest: int, split: bool) -> list[list[str]]:
    """Tokens of the lines, or of their parts without loss; an empty line stays empty."""
    tokenizer = load_tokenizer(*arguments)
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


class StartText:
    """The side of a start's text: its tags, limit and vocabulary.

    Args:
        side: 0 for the source, 1 for the target
    """

    def __init__(self, folder: Path, side: int, longest: int, is_tagged: bool = True) -> None:
        model = read_model_json(folder)
        framing = model.all_directions.frame(model.source_lang, model.target_lang)
        self.prefix = [*(framing.source_prefix, framing.target_prefix)[side]] if is_tagged else []
        self.side = side
        limit = (model.max_source_length, model.max_target_length)[side]
        self.longest = min(longest, limit or longest)
        self.words = {line.rpartition(" ")[0] for line in read_lines(dictionary_paths(model)[side])}
        self.words |= SPECIAL_SYMBOLS
        self.unknown: Counter[str] = Counter()
        self.lines = self.faulty_lines = 0

    def mark(self, lines: Iterable[list[str]]) -> Iterator[list[str]]:
        """The lines with the tags in front, except blank sources; unknown tokens are counted."""
        for tokens in lines:
            unknown = [token for token in tokens if token not in self.words]
            self.unknown.update(unknown)
            self.lines += 1
            self.faulty_lines += bool(unknown)
            yield [*self.prefix, *tokens] if tokens or self.side else tokens

    def report(self, name: str) -> None:
        """Print a warning about text that the vocabulary lacks."""
        if self.unknown:
            texts = (
                f"{token} ({number:,})" for token, number in self.unknown.most_common(EXAMPLES)
            )
            print(
                f"warning: {name}: {self.faulty_lines:,} of {self.lines:,} lines have text that the"
                f" start's vocabulary lacks, which becomes <unk>: {', '.join(texts)}"
            )


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=[*SUBWORD_FILES, START, CHECKPOINT])
    parser.add_argument(
        "model", type=Path, help="file, folder with model.json, or an encoder's checkpoint"
    )
    parser.add_argument(
        "--text", nargs=3, action="append", required=True, metavar=("LANGUAGE", "INPUT", "OUTPUT")
    )
    # fairseq's transformers have positions for 1,024.
    parser.add_argument("--longest", type=int, default=1000, help="subwords of a line")
    parser.add_argument("--split", action="store_true", help="split long lines, without loss")
    parser.add_argument(
        "--untagged", action="store_true", help="without the tags of a start, which fairseq adds"
    )
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    if len(args.text) == 2:  # line n belongs to line n
        for _ in read_pairs(*(Path(text[1]) for text in args.text)):
            pass
    kind, model, lower = args.kind, args.model, False
    if kind == CHECKPOINT:
        description = resolve_model(model, translates=False)
        kind, lower = description.subwords, description.lower
        model = description.subword_model
    for side, (language, source, output) in enumerate(args.text):
        arguments, longest = (kind, model, language, side, lower), args.longest
        start = StartText(model, side, longest, not args.untagged) if kind == START else None
        work = partial(encode, arguments=arguments, longest=longest, split=args.split)
        encoded = map_lines(work, read_lines(Path(source)), args.workers)
        if start:
            encoded, longest = start.mark(encoded), start.longest
        write_lines(Path(output), shortened(encoded, longest, source))
        if start:
            start.report(source)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
