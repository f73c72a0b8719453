"""Tokenizers: lines of plain text to tokens of a vocabulary, and back."""

from collections.abc import Collection
from copy import copy
from pathlib import Path

from .moses import join_words, split_words
from .sentences import split_sentences
from .subwords import SUBWORD_CLASSES, Gpt2, WordPiece
from .whitespace import normalise

UNKNOWN = "<unk>"
#: special symbols of fairseq's vocabularies; in a text they become unknown words
SPECIAL_SYMBOLS = {"<s>", "</s>", "<pad>", UNKNOWN, "<blank>"}


class Tokenizer:
    """White space, case, Moses and subwords of one language, in this order, and their inverse.

    Args:
        kind: kind of subwords, a key of `SUBWORD_CLASSES`
        model: the subword model's file
        language: code such as ``en``, which selects Moses' rules
        splits_words: whether Moses splits words before their subwords
        lower: whether text is lower-cased
        tags: tokens that a text must not contain, such as the tags of languages

    Raises:
        UserError: the subword model can't be read
    """

    def __init__(
        self,
        kind: str,
        model: Path | None,
        language: str,
        splits_words: bool = False,
        lower: bool = False,
        tags: Collection[str] = (),
    ) -> None:
        self.subwords = SUBWORD_CLASSES[kind](model or Path())
        self.language, self.splits_words = language, splits_words
        # BERT's word pieces have their own option of case
        self.lower = lower and not isinstance(self.subwords, WordPiece)
        self.tags = frozenset(tags)

    def for_language(self, language: str) -> "Tokenizer":
        """A tokenizer of another language with the same subwords."""
        tokenizer = copy(self)
        tokenizer.language = language
        return tokenizer

    def encode(self, line: str) -> list[str]:
        """Tokens of a line; none if it is blank."""
        line = self.normalise(line.lower() if self.lower else line)
        if self.splits_words and line:
            line = split_words(line, self.language)
        pieces = self.subwords.encode(line) if line else []
        marks = SPECIAL_SYMBOLS | self.tags
        return [UNKNOWN if piece in marks else piece for piece in pieces]

    def decode(self, tokens: list[str]) -> str:
        """One line of plain text."""
        line = self.subwords.decode([token for token in tokens if token not in self.tags])
        if self.splits_words:
            line = join_words(line.split(), self.language)
        return normalise(line) if self.normalises else " ".join(line.splitlines())

    @property
    def normalises(self) -> bool:
        """Whether white space is normalised; GPT-2's subwords keep it, and BERT's normalise it."""
        return self.splits_words or not isinstance(self.subwords, Gpt2 | WordPiece)

    def normalise(self, line: str) -> str:
        """The line before its split into subwords; empty if it is blank."""
        return normalise(line) if self.normalises else line if line.strip() else ""

    def split(self, line: str, max_tokens: int | None) -> list[list[str]]:
        """The line's tokens, split into parts of at most ``max_tokens`` tokens.

        A part has as many whole sentences as fit. A longer sentence is cut before a word, a longer
        word within it. No token is lost.
        """
        line_tokens = self.encode(line)
        if not line_tokens:
            return []
        if max_tokens is None or len(line_tokens) <= max_tokens:
            return [line_tokens]
        parts: list[list[str]] = [[]]
        for sentence in split_sentences(self.normalise(line), self.language):
            tokens = self.encode(sentence)
            if len(parts[-1]) + len(tokens) > max_tokens:
                parts.append([])
            if not parts[-1]:
                tokens = self.encode(sentence.strip(" "))
            while len(tokens) > max_tokens:
                word_starts = (
                    n for n in range(max_tokens, 0, -1) if self.subwords.is_word_start(tokens, n)
                )
                cut = next(word_starts, max_tokens)
                parts[-1] = tokens[:cut]
                parts.append([])
                tokens = tokens[cut:]
            parts[-1] += tokens
        return [part for part in parts if part]
