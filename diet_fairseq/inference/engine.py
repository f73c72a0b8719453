"""What translates sentences of subwords; `fairseq_engine` and `ctranslate2_engine` do it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import UserError
from ..model_json import ModelDescription

#: a translation has at most as many subwords as its source and these (Vaswani et al. 2017, 6.1)
LONGER = 50


@dataclass(frozen=True)
class Search:
    """How translations are looked for.

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


@dataclass(frozen=True)
class Hypothesis:
    """Subwords, and their log-probability divided by the length penalty."""

    tokens: list[str]
    score: float


class Engine(Protocol):
    """A model in memory.

    Attributes:
        longest: the most subwords that it takes in a sentence, or None if any number goes
        vocabulary: the source subwords that it knows
    """

    longest: int | None
    vocabulary: Collection[str]

    def translate(
        self, sentences: Sequence[Sequence[str]], search: Search
    ) -> list[list[Hypothesis]]:
        """Of every sentence, the ``nbest`` hypotheses, best first; may be called by any thread.

        A sentence has at least one subword and at most ``longest``, without the end of the
        sentence. A subword that is not known is an unknown one.
        """
        ...


def load(
    description: ModelDescription,
    device: str = "cpu",
    threads: int | None = None,
    others: Sequence[ModelDescription] = (),
) -> Engine:
    """The model in memory, on a device such as ``cpu`` or ``cuda:0``.

    Args:
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

        return CTranslate2Engine(description, device, threads)
    raise UserError(
        f"{description.folder} is a model for {description.engine}: load it there, or make one to "
        "translate with here of the same checkpoint, by `diet-fairseq export ctranslate2`"
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
    names = [f"dict.{language}.txt" for language in one.languages]
    files = [
        [*((about.data or about.folder) / name for name in names), about.subword_model]
        for about in (one, other)
    ]
    for ours, theirs in zip(*files, strict=True):
        if (ours and ours.read_bytes()) != (theirs and theirs.read_bytes()):
            raise UserError(
                f"an ensemble's models must have one vocabulary, but {ours} and {theirs} differ: "
                "take models of the same data"
            )
