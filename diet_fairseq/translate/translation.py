"""The translation of a line of text, and its sentences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..text.languages import join_sentences


@dataclass(frozen=True)
class Sentence:
    """A sentence of a line, or the whole line, and its translation.

    Attributes:
        source: the sentence
        text: its translation
        score: its score (see `Translation`)
        subwords: the number of subwords of the source
    """

    source: str
    text: str
    score: float
    subwords: int


@dataclass(frozen=True)
class Translation:
    """The translation of a line, and its score.

    Attributes:
        text: the translation, joined from the translations of the sentences
        score: the log-probability divided by the length penalty. If the line was split into
            sentences, the score is their mean, and the score of a sentence that exceeds the model's
            limit is the mean over its parts. The score of a blank line is 0. The score of a
            translation that the search did not find is -inf
        sentences: the sentences of the line, or the line if it was not split
    """

    text: str
    score: float
    sentences: tuple[Sentence, ...] = field(default=(), compare=False, repr=False)


def json_score(score: float) -> float | None:
    """A score in JSON, rounded; JSON has no number for the -inf of a missing translation."""
    return round(score, 6) if math.isfinite(score) else None


def join_translations(
    sentences: Sequence[Sequence[Translation]], nbest: int = 1
) -> list[Translation]:
    """The ``nbest`` translations of a line: each joins the translations of one rank.

    Args:
        sentences: the translations of each sentence, best first; none for a blank line
    """
    joined = []
    for rank in range(nbest):
        ranked = [sentence[rank] for sentence in sentences]
        text = join_sentences([translation.text for translation in ranked])
        score = sum(translation.score for translation in ranked) / max(1, len(ranked))
        parts = tuple(part for translation in ranked for part in translation.sentences)
        joined.append(Translation(text, score, parts))
    return joined
