"""Engines translate sentences of subwords: `fairseq_engine` and `ctranslate2_engine`."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from ..errors import check_at_least
from .directions import PLAIN, Framing

#: defaults of fairseq-generate's --max-len-a and --max-len-b here (Vaswani et al. 2017, 6.1)
MAX_LEN_A, MAX_LEN_B = 1.0, 50
#: option of `Search` -> its least value
LEAST = {"no_repeat_ngram_size": 0, "max_len_a": 0.0, "max_len_b": 0}


@dataclass(frozen=True)
class Search:
    """Options of a beam search.

    Attributes:
        beam: number of hypotheses to keep
        nbest: number of hypotheses to return
        lenpen: exponent of the length penalty
        penalty: formula of the length penalty, "fairseq" or "tensor2tensor"
            (`ModelDescription.penalty`)
        no_unk: whether <unk> is forbidden in translations
        framing: tokens around the sentences, which mark the direction
        no_repeat_ngram_size: size of the n-grams that a translation must not repeat; 0: none.
            As in CTranslate2, n-grams count forced tokens, but not the decoder's first input
        max_len_a, max_len_b: a translation has at most a * S + b tokens without </s>. As in
            fairseq-generate, S is the length of the source, and both lengths count `framing` and
            the length of the source counts </s>
        min_length: least number of tokens before the end of a translation, forced tokens included
        suppress_sequences: sequences of tokens that a translation must not contain
        end_tokens: tokens that, like </s>, end a translation, and are part of its text
    """

    beam: int = 5
    nbest: int = 1
    lenpen: float = 1.0
    penalty: str = "fairseq"
    no_unk: bool = False
    framing: Framing = PLAIN
    no_repeat_ngram_size: int = 0
    max_len_a: float = MAX_LEN_A
    max_len_b: int = MAX_LEN_B
    min_length: int = 1
    suppress_sequences: tuple[tuple[str, ...], ...] = ()
    end_tokens: tuple[str, ...] = ()

    def replace_options(self, **options: Any) -> "Search":
        """A copy with other options; options that are None stay as they are.

        Raises:
            UserError: a number is too small
        """
        search = replace(self, **{k: value for k, value in options.items() if value is not None})
        for name, least in LEAST.items():
            check_at_least(name, getattr(search, name), least)
        return search

    def max_length(self, subwords: int) -> int:
        """The largest length of the translation of a source, both without `framing` and </s>."""
        limit = int(self.max_len_a * (subwords + 1 + self.framing.source_length) + self.max_len_b)
        return max(1, limit - self.framing.target_length)

    @property
    def is_restricted(self) -> bool:
        """Whether n-grams or sequences are forbidden, or other tokens than </s> end a translation.

        These searches cost more at each step.
        """
        return bool(self.no_repeat_ngram_size or self.suppress_sequences or self.end_tokens)

    @property
    def engine_lenpen(self) -> float:
        """The exponent for an engine, which has fairseq's formula; `select_best` has the other."""
        return self.lenpen if self.penalty == "fairseq" else 0.0

    def select_best(self, hypotheses: Sequence["Hypothesis"]) -> list["Hypothesis"]:
        """The ``nbest`` of an engine's hypotheses, best first, with scores by this penalty.

        tensor2tensor's penalty divides the log-probabilities here. Its length counts </s>.
        """
        if self.penalty == "tensor2tensor":
            hypotheses = [
                replace(h, score=h.score / ((5 + h.steps) / 6) ** self.lenpen) for h in hypotheses
            ]
        return sorted(hypotheses, key=attrgetter("score"), reverse=True)[: self.nbest]


@dataclass(frozen=True)
class Hypothesis:
    """Subwords without </s> and framing, and their log-probability divided by the length penalty.

    ``steps`` is the number of the decoder's steps, including the steps of </s> and special tokens.
    """

    tokens: list[str]
    score: float
    steps: int = field(default=0, compare=False)


class Engine(ABC):
    """A model in memory; any thread may call it.

    Attributes:
        max_source_length: limit of subwords in a source sentence, without </s>; None: no limit
        max_target_length: limit of subwords in a translation, without </s>; None: no limit
    """

    max_source_length: int | None
    max_target_length: int | None

    @abstractmethod
    def search(
        self, sentences: Sequence[Sequence[str]], max_length: int, options: Search
    ) -> list[list[Hypothesis]]:
        """All hypotheses of the beam, of at most ``max_length`` subwords without </s> and framing.

        As in fairseq, the score includes the log-probability of forced tokens, and the length
        includes their number. The exponent of the length penalty is ``options.engine_lenpen``.
        """

    def translate(
        self, sentences: Sequence[Sequence[str]], options: Search
    ) -> list[list[Hypothesis]]:
        """The ``nbest`` hypotheses of every sentence, best first, independent of the batch.

        A sentence has at least one subword and at most ``max_source_length``. A subword that is not
        in the vocabulary is <unk>. A search has one length limit for a batch. A sentence that
        exceeds its own limit, which only happens if a model does not end its translations, is
        searched again with its own limit.
        """
        limits = [options.max_length(len(sentence)) for sentence in sentences]
        if self.max_target_length is not None:
            most = max(1, self.max_target_length - options.framing.target_length)
            limits = [min(limit, most) for limit in limits]
        batch_limit = max(limits)
        results = self.search(sentences, batch_limit, options)
        indices_by_limit = defaultdict(list)
        for index, (hypotheses, limit) in enumerate(zip(results, limits, strict=True)):
            if limit < batch_limit and any(hypothesis.steps >= limit for hypothesis in hypotheses):
                indices_by_limit[limit].append(index)
        for limit, indices in indices_by_limit.items():
            repeated = [sentences[index] for index in indices]
            shorter = self.search(repeated, limit, options)
            for index, hypotheses in zip(indices, shorter, strict=True):
                results[index] = hypotheses
        return [options.select_best(hypotheses) for hypotheses in results]
