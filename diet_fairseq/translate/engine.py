"""Engines translate sentences of subwords: `fairseq_engine` and `ctranslate2_engine`."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from ..errors import UserError
from ..input_files import VOCABULARY, read_bytes
from ..model_json import ModelDescription
from .model_files import dictionaries

#: the subwords that a translation may have beyond those of its source (Vaswani et al. 2017, 6.1)
LONGER = 50


@dataclass(frozen=True)
class Search:
    """Options of beam search: hypotheses to keep and to return, and the length penalty.

    The penalty has an exponent and a formula, "fairseq" or "tensor2tensor".
    """

    beam: int = 5
    nbest: int = 1
    lenpen: float = 1.0
    penalty: str = "fairseq"

    @property
    def engine_lenpen(self) -> float:
        """The exponent for an engine's own search: both engines have fairseq's formula alone."""
        return self.lenpen if self.penalty == "fairseq" else 0

    def best(self, hypotheses: Sequence["Hypothesis"]) -> list["Hypothesis"]:
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
    """Subwords without </s>, and their log-probability divided by the length penalty.

    ``steps`` is the number of the decoder's steps, those of </s> and special tokens included.
    """

    tokens: list[str]
    score: float
    steps: int = field(default=0, compare=False)


class Engine(ABC):
    """A model in memory; any thread may call it."""

    longest: int | None  # limit of subwords in a source sentence, </s> not counted
    longest_target: int | None  # limit of subwords in a translation, </s> not counted
    vocabulary: Collection[str]  # the source subwords

    @abstractmethod
    def search(
        self, sentences: Sequence[Sequence[str]], limit: int, options: Search
    ) -> list[list[Hypothesis]]:
        """All hypotheses of the beam, of at most ``limit`` subwords without </s>."""

    def translate(
        self, sentences: Sequence[Sequence[str]], options: Search
    ) -> list[list[Hypothesis]]:
        """The ``nbest`` hypotheses of every sentence, best first, whatever the others are.

        A sentence has at least one subword and at most ``longest``. A subword that is not in the
        vocabulary is <unk>. A search has one limit of length for a batch. A sentence that exceeded
        its own limit, which only happens where a model does not end its translations, is searched
        again with it.
        """
        limits = [len(sentence) + 1 + LONGER for sentence in sentences]  # the source's </s> counts
        if self.longest_target is not None:
            limits = [min(limit, self.longest_target) for limit in limits]
        batch_limit = max(limits)
        results = self.search(sentences, batch_limit, options)
        places_by_limit = defaultdict(list)
        for place, (hypotheses, limit) in enumerate(zip(results, limits, strict=True)):
            if limit < batch_limit and any(hypothesis.steps >= limit for hypothesis in hypotheses):
                places_by_limit[limit].append(place)
        for limit, places in places_by_limit.items():
            shorter = self.search([sentences[place] for place in places], limit, options)
            for place, hypotheses in zip(places, shorter, strict=True):
                results[place] = hypotheses
        return [options.best(hypotheses) for hypotheses in results]


def load(
    descriptions: Sequence[ModelDescription],
    device: str = "cpu",
    threads: int | None = None,
    any_ctranslate2: bool = False,
) -> Engine:
    """A model, or several as an ensemble, in memory on a device such as ``cpu`` or ``cuda:0``.

    Args:
        any_ctranslate2: whether an exported folder is loaded unchecked

    Raises:
        UserError: a model can't be loaded, or the models don't belong together
    """
    first, *others = descriptions
    for description in others:
        _check_ensemble(first, description)
    if first.engine == "fairseq":
        from .fairseq_engine import FairseqEngine

        return FairseqEngine(descriptions, device, threads)
    if first.engine == "ctranslate2":
        from .ctranslate2_engine import CTranslate2Engine

        return CTranslate2Engine(first, device, threads, any_ctranslate2)
    raise UserError(
        f"{first.folder} is a model for {first.engine}: load it there, or export the checkpoint "
        "for here: `diet-fairseq export ctranslate2`"
    )


def _check_ensemble(first: ModelDescription, second: ModelDescription) -> None:
    """Refuse models that can't translate together."""
    for description in (first, second):
        if description.engine != "fairseq":
            raise UserError(
                f"an ensemble takes checkpoints of fairseq, but {description.folder} is a model "
                f"for {description.engine}: translate with it alone"
            )
    for name in ("source_lang", "target_lang", "preprocessing", "subwords", "lower"):
        values = getattr(first, name), getattr(second, name)
        if values[0] != values[1]:
            raise UserError(
                f"an ensemble's models must prepare text alike, but {first.folder} has {name} "
                f"{values[0]} and {second.folder} {values[1]}: take models of the same data"
            )
    files = [[*dictionaries(model), model.subword_model] for model in (first, second)]
    for paths in zip(*files, strict=True):
        contents = [path and read_bytes(path, VOCABULARY) for path in paths]
        if contents[0] != contents[1]:
            raise UserError(
                f"an ensemble's models must have one vocabulary, but {paths[0]} and {paths[1]} "
                "differ: take models of the same data"
            )
