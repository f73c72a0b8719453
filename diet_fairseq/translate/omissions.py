"""Warnings about sentences whose translation may lack text."""

import logging
from collections.abc import Iterable

from ..text.languages import count_words
from .model_json import TRAINING_SHARE
from .translation import Translation

logger = logging.getLogger(__name__)
#: number of words below which a sentence may have a translation of any length
MIN_WORDS = 10
#: smallest share of a sentence's words that its translation has: 49 of 305,082 pairs of sentences
#: in 18 languages (FLORES' dev set) are below it, and 2 of 313,678 in English and German (Tatoeba)
MIN_SHARE = 0.3


class Omissions:
    """The sentences of a request whose translation may lack text.

    Args:
        training_source_length: the number of subwords that few sources of the training data exceed;
            None: unknown
    """

    def __init__(self, training_source_length: int | None) -> None:
        self.training_source_length = training_source_length
        self.lines = 0
        self.long_sentences: list[str] = []
        self.short_translations: list[str] = []

    def add(self, translations: Iterable[Translation]) -> None:
        """Examine the translations of further lines."""
        for translation in translations:
            self.lines += 1
            for number, sentence in enumerate(translation.sentences, 1):
                name = f"line {self.lines}"
                if len(translation.sentences) > 1:
                    name = f"sentence {number} of {name}"
                longest = self.training_source_length
                if longest and sentence.subwords > longest:
                    self.long_sentences.append(f"{name} has {sentence.subwords:,} subwords")
                words = count_words(sentence.source)
                translated = count_words(sentence.text)
                if words >= MIN_WORDS and translated < MIN_SHARE * words:
                    self.short_translations.append(
                        f"{name} has {words:.0f} words, but its translation has {translated:.0f}"
                    )

    def log(self) -> None:
        """Log one warning for each kind of sentence."""
        if self.long_sentences:
            logger.warning(
                "%s, more than %s of the training data (at most %d): its translation may lack "
                "text%s",
                self.long_sentences[0],
                f"{TRAINING_SHARE:.1%}",
                self.training_source_length,
                _count_others(self.long_sentences),
            )
        if self.short_translations:
            logger.warning(
                "%s: text may be missing%s",
                self.short_translations[0],
                _count_others(self.short_translations),
            )


def _count_others(sentences: list[str]) -> str:
    others = len(sentences) - 1
    return f" (and {others:,} other sentence{'s' * (others > 1)})" if others else ""
