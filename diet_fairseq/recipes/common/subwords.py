"""Subwords: one vocabulary for both languages, learnt from the training text.

A model is a folder: `learn` fills it, `Subwords(folder)` reads it. Both kinds are byte pair
encoding. SentencePiece takes raw text; subword-nmt wants words split by sacremoses first, and
sacremoses joins them again in the end.
"""

import io
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, redirect_stderr
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, Protocol

import sentencepiece

from ...atomic import written
from ...errors import UserError
from .moses import join, segment, tokenise
from .parallel import chunks, in_processes
from .text import read_lines

#: as sacremoses writes them
MOSES_ESCAPES = {
    "&": "&amp;",
    "|": "&#124;",
    "<": "&lt;",
    ">": "&gt;",
    "'": "&apos;",
    '"': "&quot;",
    "[": "&#91;",
    "]": "&#93;",
}
#: enough to learn subwords from; bounds the memory that takes
MOST_LINES = 1_000_000


def thinned(text: Path, lines: int) -> Iterable[str]:
    """Evenly spaced lines of the text, where its ``lines`` are more than are needed."""
    return islice(filter(None, read_lines(text)), 0, None, -(-lines // MOST_LINES))


class Placed(NamedTuple):
    """A line's subwords, separated by spaces; the characters each begins and ends at.

    Spaces around a subword's characters are no part of it; some subwords have no character.
    """

    subwords: str
    begins: list[int]
    ends: list[int]


class Subwords(Protocol):
    """Text of one language as subwords separated by spaces, and back."""

    @staticmethod
    def learn(folder: Path, texts: dict[str, Iterable[str]], size: int, workers: int) -> None: ...

    def __init__(self, folder: Path) -> None: ...

    def encode(self, lines: Iterable[str], language: str, workers: int) -> Iterator[str]: ...

    def decode(self, line: str, language: str) -> str: ...

    def places(self, lines: Iterable[str], language: str, workers: int) -> Iterator["Placed"]:
        """Subwords as `encode` gives them, with the characters that each stands for."""


class SentencePiece:
    """Learnt from raw text, and applied to it."""

    @staticmethod
    def learn(folder: Path, texts: dict[str, Iterable[str]], size: int, workers: int) -> None:
        lines = [line for text in texts.values() for line in text]
        # A web crawl holds thousands of characters that occur once, which would fill the
        # vocabulary. With more of them than it has room for, SentencePiece would stop.
        characters = Counter(chain.from_iterable(lines))
        rare = dict.fromkeys(ord(char) for char, _ in characters.most_common()[size // 4 :])
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line.translate(rare) if rare else line for line in lines),
                model_writer=model,
                model_type="bpe",
                vocab_size=size,
                character_coverage=1.0,
                hard_vocab_limit=False,  # a small corpus may have less than was asked for
                minloglevel=2,
            )
        except RuntimeError as error:
            raise UserError(
                f"SentencePiece can't learn {size:,} subwords from this text "
                f"({' '.join(str(error).split())}): try another --vocabulary"
            ) from error
        with written(folder / "sentencepiece.model", "wb") as file:
            file.write(model.getvalue())

    def __init__(self, folder: Path) -> None:
        self.model = sentencepiece.SentencePieceProcessor(
            model_file=str(folder / "sentencepiece.model")
        )

    def encode(self, lines: Iterable[str], language: str, workers: int) -> Iterator[str]:
        for chunk in chunks(lines):
            for pieces in self.model.encode(chunk, out_type=str, num_threads=workers):
                yield " ".join(pieces)

    def decode(self, line: str, language: str) -> str:
        return self.model.decode(line.split(" "))

    def places(self, lines: Iterable[str], language: str, workers: int) -> Iterator[Placed]:
        for chunk in chunks(lines):
            found = self.model.encode(
                chunk, out_type="offset_mapping", num_threads=workers, return_bytes=False
            )
            for line, one in zip(chunk, found, strict=True):
                spans = [stripped(line, *span) for span in one["offsets"]]
                yield Placed(" ".join(one["pieces"]), *map(list, transposed(spans)))


class SubwordNmt:
    """Learnt from words, and applied to them."""

    @staticmethod
    def learn(folder: Path, texts: dict[str, Iterable[str]], size: int, workers: int) -> None:
        from subword_nmt.learn_bpe import learn_bpe

        words: Counter[str] = Counter()
        for language, lines in texts.items():
            for line in in_processes(tokenise, lines, language, workers=workers):
                words.update(line.split())
        table = [f"{word} {count}" for word, count in words.items()]
        # total_symbols: the single characters count among the subwords asked for. Where they leave
        # no room, half as many merges are learnt all the same: the dictionary drops rare ones.
        for total_symbols, merges in ((True, size), (False, size // 2)):
            codes = io.StringIO()
            # It draws a progress bar in files, too.
            quiet = nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())
            with quiet:
                learn_bpe(table, codes, merges, is_dict=True, total_symbols=total_symbols)
            if codes.getvalue().count("\n") > 1:  # the first line is the version
                break
        else:
            raise UserError(
                "subword-nmt finds no pair of characters that occurs twice in the training text: "
                "give more text, or take --bpe sentencepiece"
            )
        with written(folder / "codes") as file:
            file.write(codes.getvalue())

    def __init__(self, folder: Path) -> None:
        self.codes = folder / "codes"

    def encode(self, lines: Iterable[str], language: str, workers: int) -> Iterator[str]:
        return in_processes(segment, lines, language, self.codes, workers=workers)

    def decode(self, line: str, language: str) -> str:
        return join(line, language)

    def places(self, lines: Iterable[str], language: str, workers: int) -> Iterator[Placed]:
        lines = list(lines)
        for line, coded in zip(lines, self.encode(lines, language, workers), strict=True):
            words = [piece.removesuffix("@@") for piece in coded.split()]
            yield Placed(" ".join(coded.split()), *map(list, transposed(found_in(line, words))))


def transposed(spans: list[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(begin for begin, _ in spans), tuple(end for _, end in spans)


def stripped(line: str, begin: int, end: int) -> tuple[int, int]:
    """The characters without spaces around them; SentencePiece counts one before a word to it."""
    while begin < end and line[begin].isspace():
        begin += 1
    while begin < end and line[end - 1].isspace():
        end -= 1
    return begin, end


def found_in(line: str, words: list[str]) -> list[tuple[int, int]]:
    """Where parts of words stand, which follow each other in the line, escaped as Moses does.

    A character that is not found nearby (the tokeniser changed it) is passed over.
    """
    characters = [
        (part, place)
        for place, one in enumerate(line)
        if not one.isspace()
        for part in MOSES_ESCAPES.get(one, one)
    ]
    spans, at, end = [], 0, 0
    for word in words:
        begin = None
        for part in word:
            nearby = range(at, min(at + 8, len(characters)))
            here = next((n for n in nearby if characters[n][0] == part), None)
            if here is not None:
                place = characters[here][1]
                begin = place if begin is None else begin
                at, end = here + 1, place + 1
        spans.append((end if begin is None else begin, end))
    return spans


KINDS: dict[str, type[Subwords]] = {"sentencepiece": SentencePiece, "subword-nmt": SubwordNmt}
