"""A line of text to the subwords that a model was trained on, and back."""

from collections.abc import Callable, Collection
from contextlib import redirect_stderr
from functools import cached_property
from io import StringIO
from pathlib import Path

from ..errors import UserError
from ..model_json import ModelDescription
from ..recipes.common import moses
from ..recipes.common.text import normalise
from .engine import UNKNOWN
from .sentences import sentences

#: what stands for something else in a vocabulary; in a text it is a word that nobody knows
MARKS = {"<s>", "</s>", "<pad>", "<unk>", "<blank>"}
#: of a dictionary's subwords, the share that its subword model may not know: rare characters
STRANGE = 0.1
#: words whose subwords are remembered
MOST_WORDS = 100_000


class Text:
    """What is done to a line before the model and after it.

    :raises UserError: if the subword model can't be read, or is another vocabulary's
    """

    def __init__(self, description: ModelDescription) -> None:
        self.source, self.target = description.source_lang, description.target_lang
        self.moses = description.preprocessing == "moses"
        self._subwords = SUBWORDS[description.subwords](description.subword_model or Path())

    def tokens(self, line: str) -> list[str]:
        """Subwords of a line; none if there is nothing to say."""
        line = normalise(line)
        if self.moses and line:
            [line] = moses.tokenise([line], self.source)
        pieces = self._subwords.encode(line) if line else []
        return [UNKNOWN if piece in MARKS else piece for piece in pieces]

    def text(self, tokens: list[str]) -> str:
        """One line of plain text."""
        line = self._subwords.decode(tokens)
        if self.moses:
            line = moses.moses("MosesDetokenizer", self.target).detokenize(line.split())
        return normalise(line)

    def parts(self, line: str, longest: int | None) -> list[list[str]]:
        """The line's subwords, or if there are too many, those of its parts, in order.

        Sentences stay whole, and as many are together as fit. One that is too long by itself is
        cut before a word, and a word that is, within it: no subword is left out.
        """
        whole = self.tokens(line)
        if not whole:
            return []
        if longest is None or len(whole) <= longest:
            return [whole]
        parts: list[list[str]] = [[]]
        for sentence in sentences(normalise(line)):
            tokens = self.tokens(sentence)
            if len(parts[-1]) + len(tokens) > longest:
                parts.append([])
            while len(tokens) > longest:
                starts = (n for n in range(longest, 0, -1) if self._subwords.starts(tokens, n))
                cut = next(starts, longest)
                parts[-1] = tokens[:cut]
                parts.append([])
                tokens = tokens[cut:]
            parts[-1] += tokens
        return [part for part in parts if part]

    def check(self, vocabulary: Collection[str], names: str) -> None:
        """Refuse a subword model that is not the one the vocabulary was made with.

        :param names: of the two, for the error
        """
        known = self._subwords.known
        # Characters that no subword holds stand in a vocabulary as themselves.
        words = [word for word in vocabulary if len(word.removesuffix("@@").strip("▁")) > 1]
        words = [word for word in words if word not in MARKS and not _made_up(word)]
        if known is None or not words:
            return
        strange = sum(word not in known for word in words)
        if strange > STRANGE * len(words):
            raise UserError(
                f"{names} don't belong together: {strange:,} of {len(words):,} subwords of the "
                "vocabulary are none of the subword model's; give the two that were made together"
            )


def _made_up(word: str) -> bool:
    """Whether fairseq filled up a dictionary with it."""
    return word.startswith("madeupword")


class SentencePiece:
    """SentencePiece's subwords, of raw text."""

    def __init__(self, model: Path) -> None:
        import sentencepiece

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
    def known(self) -> set[str]:
        return {self.model.id_to_piece(number) for number in range(self.model.get_piece_size())}


class SubwordNmt:
    """subword-nmt's subwords, of words."""

    def __init__(self, codes: Path) -> None:
        from subword_nmt.apply_bpe import BPE

        try:
            # It says what is wrong with a file on stderr, and exits.
            with open(codes, encoding="utf-8", newline="\n") as file, redirect_stderr(StringIO()):
                self.bpe = BPE(file)
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
    def known(self) -> set[str]:
        merged = {"".join(pair) for pair in self.bpe.bpe_codes}
        ends = {one.removesuffix("</w>") for one in merged if one.endswith("</w>")}
        return ends | {f"{one}@@" for one in merged if not one.endswith("</w>")}


class Words:
    """No subwords: the vocabulary has the words."""

    known = None

    def __init__(self, _: Path) -> None:
        pass

    def encode(self, line: str) -> list[str]:
        return line.split()

    def decode(self, tokens: list[str]) -> str:
        return " ".join(tokens)

    @staticmethod
    def starts(tokens: list[str], place: int) -> bool:
        return True


SUBWORDS: dict[str, Callable[[Path], SentencePiece | SubwordNmt | Words]] = {
    "sentencepiece": SentencePiece,
    "subword_nmt": SubwordNmt,
    "none": Words,
}
