"""Engines translate sentences of subwords: `fairseq_engine` and `ctranslate2_engine`."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..errors import UserError
from ..input_files import VOCABULARY, read_bytes
from ..model_json import ModelDescription
from .model_files import dictionaries

#: a translation may have as many subwords more than its source (Vaswani et al. 2017, 6.1)
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
                replace(one, score=one.score / ((5 + one.steps) / 6) ** self.lenpen)
                for one in hypotheses
            ]
        return sorted(hypotheses, key=lambda one: one.score, reverse=True)[: self.nbest]


@dataclass(frozen=True)
class Hypothesis:
    """Subwords without </s>, and their log-probability divided by the length penalty.

    ``steps`` of the decoder wrote them; </s> and special tokens, which are left out, count.
    """

    tokens: list[str]
    score: float
    steps: int = field(default=0, compare=False)


class Engine(Protocol):
    """A model in memory.

    Attributes:
        longest: the most subwords of a source sentence, or None if there is no limit
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
    sentences: Sequence[Sequence[str]],
    longest_target: int | None,
    search_batch: Callable[[Sequence[Sequence[str]], int], list[list[Hypothesis]]],
) -> list[list[Hypothesis]]:
    """All hypotheses of every sentence, each as if the sentence were translated alone.

    Engines have one limit of length for a batch. A sentence whose search got beyond its own limit,
    which only happens where a model does not end its translations, is searched again with it.

    Args:
        longest_target: subwords that the model writes at most, </s> not counted
        search_batch: returns all hypotheses that its search has kept, given sentences and the
            limit of subwords, </s> not counted
    """
    limits = [len(sentence) + 1 + LONGER for sentence in sentences]  # the source's </s> counts
    if longest_target is not None:
        limits = [min(limit, longest_target) for limit in limits]
    most = max(limits)
    results = search_batch(sentences, most)
    again = defaultdict(list)
    for place, (hypotheses, limit) in enumerate(zip(results, limits, strict=True)):
        if limit < most and max((one.steps for one in hypotheses), default=0) >= limit:
            again[limit].append(place)
    for limit, places in again.items():
        found = search_batch([sentences[place] for place in places], limit)
        for place, hypotheses in zip(places, found, strict=True):
            results[place] = hypotheses
    return results


def load(
    description: ModelDescription,
    device: str = "cpu",
    threads: int | None = None,
    any_ctranslate2: bool = False,
    others: Sequence[ModelDescription] = (),
) -> Engine:
    """The model in memory, on a device such as ``cpu`` or ``cuda:0``.

    Args:
        any_ctranslate2: whether an exported folder is loaded unchecked
        others: models that translate together with it, as an ensemble

    Raises:
        UserError: a model can't be loaded, or the models don't belong together
    """
    for other in others:
        _check_ensemble(description, other)
    if description.engine == "fairseq":
        from .fairseq_engine import FairseqEngine

        return FairseqEngine([description, *others], device, threads)
    if description.engine == "ctranslate2":
        from .ctranslate2_engine import CTranslate2Engine

        return CTranslate2Engine(description, device, threads, any_ctranslate2)
    raise UserError(
        f"{description.folder} is a model for {description.engine}: load it there, or export the "
        "checkpoint for here: `diet-fairseq export ctranslate2`"
    )


def _check_ensemble(one: ModelDescription, other: ModelDescription) -> None:
    """Refuse models that can't translate together."""
    for description in (one, other):
        if description.engine != "fairseq":
            raise UserError(
                f"an ensemble takes checkpoints of fairseq, but {description.folder} is a model "
                f"for {description.engine}: translate with it alone"
            )
    if one.languages != other.languages:
        raise UserError(
            f"an ensemble's models must have the same languages, but {one.folder} has "
            f"{'-'.join(one.languages)} and {other.folder} {'-'.join(other.languages)}"
        )
    for name in ("preprocessing", "subwords", "lower"):
        ours, theirs = getattr(one, name), getattr(other, name)
        if ours != theirs:
            raise UserError(
                f"an ensemble's models must prepare text alike, but {one.folder} has {name} "
                f"{ours} and {other.folder} {theirs}: take models of the same data"
            )
    files = [[*dictionaries(about), about.subword_model] for about in (one, other)]
    for ours, theirs in zip(*files, strict=True):
        contents = [path and read_bytes(path, VOCABULARY) for path in (ours, theirs)]
        if contents[0] != contents[1]:
            raise UserError(
                f"an ensemble's models must have one vocabulary, but {ours} and {theirs} differ: "
                "take models of the same data"
            )
