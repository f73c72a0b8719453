"""Subword models: text to subwords and back, and whether a vocabulary is theirs."""

import re
from collections.abc import Callable, Collection
from contextlib import redirect_stderr
from functools import cached_property
from io import StringIO
from pathlib import Path

from ..errors import UserError
from ..input_files import VOCABULARY, check_regular, open_regular, open_text
from ..model_json import ModelDescription

#: what stands in vocabularies beside subwords: marks such as <mask>, and fairseq's filling
BESIDE = re.compile(r"<[^\s<>]*>|madeupword\d+")
#: of a vocabulary's subwords, the share that its subword model may not know
STRANGE = 0.05
#: words whose subwords are remembered
MOST_WORDS = 100_000


class SentencePiece:
    """SentencePiece's subwords, of raw text."""

    def __init__(self, model: Path) -> None:
        import sentencepiece

        check_regular(model, VOCABULARY)
        try:
            self.model = sentencepiece.SentencePieceProcessor(model_file=str(model))
        except (RuntimeError, OSError) as error:
            raise UserError(
                f"{model} is no model of SentencePiece, or is damaged: give another"
            ) from error

    def encode(self, line: str) -> list[str]:
        pieces: list[str] = self.model.encode(line, out_type=str)
        # A character that no piece has stands for itself, and may be a space of some kind.
        return [piece for piece in pieces if piece.strip()]

    def decode(self, tokens: list[str]) -> str:
        return str(self.model.decode(tokens))

    @staticmethod
    def starts(tokens: list[str], place: int) -> bool:
        """Whether a word starts there."""
        return tokens[place].startswith("▁")

    @cached_property
    def _pieces(self) -> set[str]:
        return {self.model.id_to_piece(number) for number in range(self.model.get_piece_size())}

    def gives(self, symbol: str) -> bool:
        """A piece, or characters that no piece has."""
        return symbol in self._pieces or not any(char in self._pieces for char in symbol)


class SubwordNmt:
    """subword-nmt's subwords, of words."""

    def __init__(self, codes: Path) -> None:
        from subword_nmt.apply_bpe import BPE

        try:
            # It says what is wrong with a file on stderr, and exits.
            with open_text(codes, newline="\n") as file, redirect_stderr(StringIO()):
                self.bpe = BPE(file)
        except UserError:
            raise
        except (OSError, ValueError, SystemExit) as error:
            raise UserError(f"{codes} holds no codes of subword-nmt: give others") from error

    def encode(self, line: str) -> list[str]:
        if len(self.bpe.cache) > MOST_WORDS:
            self.bpe.cache.clear()
        return str(self.bpe.process_line(line)).split()

    def decode(self, tokens: list[str]) -> str:
        return f"{' '.join(tokens)} ".replace("@@ ", "").strip()

    @staticmethod
    def starts(tokens: list[str], place: int) -> bool:
        return not tokens[place - 1].endswith("@@")

    @cached_property
    def _merged(self) -> set[str]:
        return {"".join(pair) for pair in self.bpe.bpe_codes}

    def gives(self, symbol: str) -> bool:
        """A character, or what a merge has made."""
        part = symbol.removesuffix("@@")
        return len(part) < 2 or (part if symbol != part else f"{part}</w>") in self._merged


class Words:
    """No subwords: the vocabulary has the words."""

    def __init__(self, _: Path) -> None:
        pass

    def encode(self, line: str) -> list[str]:
        return line.split()

    def decode(self, tokens: list[str]) -> str:
        return " ".join(tokens)

    @staticmethod
    def starts(tokens: list[str], place: int) -> bool:
        return True

    @staticmethod
    def gives(symbol: str) -> bool:
        return True


Subwords = SentencePiece | SubwordNmt | Words
KINDS: dict[str, Callable[[Path], Subwords]] = {
    "sentencepiece": SentencePiece,
    "subword_nmt": SubwordNmt,
    "none": Words,
}


def of(description: ModelDescription) -> Subwords:
    """The model's, in memory."""
    return KINDS[description.subwords](description.subword_model or Path())


def kind_of(path: Path) -> str:
    """What a file holds: "sentencepiece" or "subword_nmt"."""
    with open_regular(path, VOCABULARY, "give --subwords another file") as file:
        start = file.read(4096)
    if start.startswith(b"\n"):  # protobuf: the first field of SentencePiece's ModelProto
        return "sentencepiece"
    if re.match(rb"#version|\S+ \S+\s", start):
        return "subword_nmt"
    raise UserError(
        f"{path} is no SentencePiece model and holds no codes of subword-nmt: give the subword "
        "model that the data was made with"
    )


def check(subwords: Subwords, vocabulary: Collection[str], names: str) -> None:
    """Refuse a subword model that is not the one the vocabulary was made with.

    :param names: of the two, for the error
    """
    words = [word for word in vocabulary if not BESIDE.fullmatch(word)]
    strange = [word for word in words if not subwords.gives(word)]
    if len(strange) > STRANGE * len(words):
        raise UserError(
            f"{names} don't belong together: {len(strange):,} of {len(words):,} subwords of the "
            f"vocabulary (such as {strange[0]!r}) are none of the subword model's; give the two "
            "that were made together"
        )


def marked(vocabulary: Collection[str]) -> str | None:
    """A subword of the vocabulary, by the mark of SentencePiece or subword-nmt; None: words."""
    return next((w for w in vocabulary if w.startswith("▁") or w.endswith("@@")), None)
