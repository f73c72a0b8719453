"""Engines translate sentences of subwords: `fairseq_engine` and `ctranslate2_engine`."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Protocol

from ..errors import UserError
from ..input_files import VOCABULARY, read_bytes
from ..model_json import ModelDescription
from .model_files import dictionaries

#: the subwords that a translation may have beyond those of its source (Vaswani et al. 2017, 6.1)
LONGER = 50


@dataclass(frozen=True)
class Search:
    """Options of beam search.

    Attributes:
        beam: hypotheses to keep for a sentence
        nbest: hypotheses to return, at most ``beam``
        lenpen: exponent of the length penalty
        penalty: its formula: "fairseq" or "tensor2tensor"
    """

    beam: int = 5
    nbest: int = 1
    lenpen: float = 1.0
    penalty: str = "fairseq"

    def best(self, hypotheses: Sequence["Hypothesis"]) -> list["Hypothesis"]:
        """The ``nbest`` hypotheses, best first.

        Engines apply fairseq's penalty themselves; otherwise scores are log-probabilities, which
        tensor2tensor's penalty divides here. Its length counts </s>.
        """
        if self.penalty == "tensor2tensor":
            hypotheses = [
                replace(
                    hypothesis, score=hypothesis.score / ((5 + hypothesis.steps) / 6) ** self.lenpen
                )
                for hypothesis in hypotheses
            ]
        return sorted(hypotheses, key=attrgetter("score"), reverse=True)[: self.nbest]


@dataclass(frozen=True)
class Hypothesis:
    """Subwords without </s>, and their log-probability divided by the length penalty.

    ``steps`` is the number of the decoder's steps, those of </s> and special tokens included.
    """

    tokens: list[str]
    score: float
    steps: int = field(default=0, compare=False)


class Engine(Protocol):
    """A model in memory.

    Attributes:
        longest: the limit of subwords in a source sentence, or None
        vocabulary: the source subwords
    """

    longest: int | None
    vocabulary: Collection[str]

    def translate(
        self, sentences: Sequence[Sequence[str]], search: Search
    ) -> list[list[Hypothesis]]:
        """The ``nbest`` hypotheses of every sentence, best first; any thread may call this.

        A sentence has at least one subword and at most ``longest``, </s> not counted. A subword
        that is not in the vocabulary is <unk>. The result for a sentence does not depend on the
        others.
        """
        ...


def search_each(
    search_batch: Callable[[Sequence[Sequence[str]], int, Search], list[list[Hypothesis]]],
    sentences: Sequence[Sequence[str]],
    longest_target: int | None,
    search: Search,
) -> list[list[Hypothesis]]:
    """The best hypotheses of every sentence, each as if the sentence were translated alone.

    Engines have one limit of length for a batch. A sentence whose search exceeded its own limit,
    which only happens where a model does not end its translations, is searched again with it.

    Args:
        search_batch: returns all hypotheses of a search, given sentences, the limit of subwords
            without </s>, and options
        longest_target: the limit of the model, without </s>
    """
    limits = [len(sentence) + 1 + LONGER for sentence in sentences]  # the source's </s> counts
    if longest_target is not None:
        limits = [min(limit, longest_target) for limit in limits]
    batch_limit = max(limits)
    results = search_batch(sentences, batch_limit, search)
    places_by_limit = defaultdict(list)
    for place, (hypotheses, limit) in enumerate(zip(results, limits, strict=True)):
        if limit < batch_limit and any(hypothesis.steps >= limit for hypothesis in hypotheses):
            places_by_limit[limit].append(place)
    for limit, places in places_by_limit.items():
        shorter = search_batch([sentences[place] for place in places], limit, search)
        for place, hypotheses in zip(places, shorter, strict=True):
            results[place] = hypotheses
    return [search.best(hypotheses) for hypotheses in results]


def load(
    description: ModelDescription,
    device: str = "cpu",
    threads: int | None = None,
    any_ctranslate2: bool = False,
    ensemble: Sequence[ModelDescription] = (),
) -> Engine:
    """The model in memory, on a device such as ``cpu`` or ``cuda:0``.

    Args:
        any_ctranslate2: whether an exported folder is loaded unchecked
        ensemble: models that translate together with it

    Raises:
        UserError: a model can't be loaded, or the models don't belong together
    """
    for other in ensemble:
        _check_ensemble(description, other)
    if description.engine == "fairseq":
        from .fairseq_engine import FairseqEngine

        return FairseqEngine([description, *ensemble], device, threads)
    if description.engine == "ctranslate2":
        from .ctranslate2_engine import CTranslate2Engine

        return CTranslate2Engine(description, device, threads, any_ctranslate2)
    raise UserError(
        f"{description.folder} is a model for {description.engine}: load it there, or export the "
        "checkpoint for here: `diet-fairseq export ctranslate2`"
    )


def _check_ensemble(first: ModelDescription, other: ModelDescription) -> None:
    """Refuse models that can't translate together."""
    for description in (first, other):
        if description.engine != "fairseq":
            raise UserError(
                f"an ensemble takes checkpoints of fairseq, but {description.folder} is a model "
                f"for {description.engine}: translate with it alone"
            )
    if first.languages != other.languages:
        raise UserError(
            f"an ensemble's models must have the same languages, but {first.folder} has "
            f"{'-'.join(first.languages)} and {other.folder} {'-'.join(other.languages)}"
        )
    for name in ("preprocessing", "subwords", "lower"):
        values = getattr(first, name), getattr(other, name)
        if values[0] != values[1]:
            raise UserError(
                f"an ensemble's models must prepare text alike, but {first.folder} has {name} "
                f"{values[0]} and {other.folder} {values[1]}: take models of the same data"
            )
    files = [[*dictionaries(about), about.subword_model] for about in (first, other)]
    for path, other_path in zip(*files, strict=True):
        contents = [file and read_bytes(file, VOCABULARY) for file in (path, other_path)]
        if contents[0] != contents[1]:
            raise UserError(
                f"an ensemble's models must have one vocabulary, but {path} and {other_path} "
                "differ: take models of the same data"
            )
