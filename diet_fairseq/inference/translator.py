"""`Translator`: text to text with a trained model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, overload

from ..errors import UserError
from ..text.subwords import check_vocabulary
from ..text.tokenizer import tokenizers
from . import engine
from .engine import Hypothesis, Search
from .model_files import Pieces, resolve_model

#: source subwords in a batch, with padding
MAX_TOKENS = 4000
#: source subwords that are translated at once by a model without a limit of its own: fairseq's
#: default of --max-source-positions, </s> not counted
LONGEST = 1023


@dataclass(frozen=True)
class Translation:
    """A line's translation, and its log-probability divided by the length penalty.

    A line that was cut has the mean of its parts' scores; an empty one has 0.
    """

    text: str
    score: float


class TooLong(UserError):
    """A line has more subwords than the model takes, and may not be cut."""

    def __init__(self, number: int, subwords: int, longest: int) -> None:
        super().__init__(
            f"line {number} has {subwords:,} subwords, but the model takes {longest:,}"
        )
        self.number, self.subwords, self.longest = number, subwords, longest


class Translator:
    """Translates lines of plain text. Any number of threads may call it at once.

        from diet_fairseq import Translator

        translator = Translator("wmt18/en-de/runs/diet_rel-base-en-de")
        translator.translate("A man rides a horse.")
        translator.translate(["One line.", "Another."])
        Translator(["runs/seed1", "runs/seed2"])  # an ensemble

    Args:
        model: a folder with ``model.json``, an exported model, or a checkpoint; several checkpoints
            of one vocabulary translate together, as an ensemble
        data: folder of fairseq's dictionaries, for a checkpoint without ``model.json`` beside it
        subwords: SentencePiece's model or subword-nmt's codes, likewise; "none": there are none
        tokenizer: "moses" or "none", likewise: the tokenizer before the subwords
        source_lang: language of the text, where the checkpoint does not say it
        target_lang: language of the translations, likewise
        device: such as "cpu" or "cuda:0"
        threads: of the CPU, for the whole process (None: as PyTorch or CTranslate2 choose)
        max_tokens: source subwords in a batch
        position_temperature: what the logits of attention are divided by (None: as the checkpoint
            says, which is 1 unless it was trained with another); below 1 for longer inputs
        any_ctranslate2: load a CTranslate2 folder that ``export ctranslate2`` did not write; a
            forged one can corrupt memory

    Attributes:
        source_lang, target_lang: the languages
        longest: the most subwords of a line that is not cut
        search: beam and length penalty where none are given

    Raises:
        UserError: if something is missing, wrong or doesn't belong together
    """

    def __init__(
        self,
        model: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        data: str | PathLike[str] | None = None,
        subwords: str | PathLike[str] | None = None,
        tokenizer: str | None = None,
        source_lang: str | None = None,
        target_lang: str | None = None,
        position_temperature: float | None = None,
        device: str = "cpu",
        threads: int | None = None,
        max_tokens: int = MAX_TOKENS,
        any_ctranslate2: bool = False,
    ) -> None:
        pieces = Pieces(
            Path(data) if data else None,
            Path(subwords) if subwords else None,
            tokenizer,
            source_lang,
            target_lang,
            position_temperature,
        )
        models = [model] if isinstance(model, str | PathLike) else model
        descriptions = [resolve_model(Path(one), pieces) for one in models]
        description, *others = descriptions
        self.source_lang, self.target_lang = description.source_lang, description.target_lang
        self.search = Search(
            description.beam, lenpen=description.lenpen, penalty=description.penalty
        )
        self.max_tokens = max_tokens
        self._source, self._target = tokenizers(description)
        self._engine = engine.load(description, device, threads, any_ctranslate2, others)
        check_vocabulary(
            self._source.subwords,
            self._engine.vocabulary,
            f"{description.data or description.folder} and {description.subword_model}",
        )
        limits = (self._engine.longest, description.max_source_length, LONGEST)
        self.longest: int = min(limit for limit in limits if limit is not None)

    @overload
    def translate(
        self, text: str, *, beam: int | None = None, lenpen: float | None = None, strict: bool = ...
    ) -> str: ...

    @overload
    def translate(
        self,
        text: list[str] | tuple[str, ...],
        *,
        beam: int | None = None,
        lenpen: float | None = None,
        strict: bool = ...,
    ) -> list[str]: ...

    def translate(
        self,
        text: str | list[str] | tuple[str, ...],
        *,
        beam: int | None = None,
        lenpen: float | None = None,
        strict: bool = False,
    ) -> str | list[str]:
        """The translation of one line, or those of several, in their order.

        A line is one line, whatever characters it holds, and so is its translation. A blank one
        stays blank. One that is too long is cut at the ends of its sentences; with ``strict`` it
        is a `TooLong`.

        :param beam: hypotheses to keep
        :param lenpen: exponent of the length penalty
        """
        lines = [text] if isinstance(text, str) else text
        found = self.candidates(lines, beam=beam, lenpen=lenpen, strict=strict)
        best = [some[0].text for some in found]
        return best[0] if isinstance(text, str) else best

    def candidates(
        self,
        lines: Sequence[str],
        *,
        nbest: int = 1,
        beam: int | None = None,
        lenpen: float | None = None,
        strict: bool = False,
        done: Callable[[int], Any] = lambda lines: None,
    ) -> list[list[Translation]]:
        """Of every line its ``nbest`` translations, best first; all else is as in `translate`.

        If there are fewer (a blank line has none), the rest are empty.

        :param done: is called after each batch with the number of lines that it completed
        :raises UserError: if ``nbest`` is more than ``beam``, or either is less than 1
        """
        search = self._search(beam, nbest, lenpen)
        parts: list[list[str]] = []
        owners: list[int] = []
        for number, line in enumerate(lines):
            for part in self._parts(line, number + 1, strict):
                parts.append(part)
                owners.append(number)
        left = [0] * len(lines)
        for owner in owners:
            left[owner] += 1
        done(left.count(0))
        found: list[list[Hypothesis]] = [[] for _ in parts]
        for batch in self._batches(parts):
            sentences = [parts[place] for place in batch]
            for place, some in zip(batch, self._engine.translate(sentences, search), strict=True):
                found[place] = some
                left[owners[place]] -= 1
            done(sum(left[owner] == 0 for owner in {owners[place] for place in batch}))
        by_line: list[list[list[Hypothesis]]] = [[] for _ in lines]
        for owner, some in zip(owners, found, strict=True):
            by_line[owner].append(some)
        return [[self._joined(some, rank) for rank in range(nbest)] for some in by_line]

    def _search(self, beam: int | None, nbest: int, lenpen: float | None) -> Search:
        search = replace(self.search, nbest=nbest)
        if beam is not None:
            search = replace(search, beam=beam)
        if lenpen is not None:
            search = replace(search, lenpen=lenpen)
        if search.beam < 1:
            raise UserError(f"beam must be at least 1, but is {search.beam}")
        if not 1 <= nbest <= search.beam:
            raise UserError(
                f"nbest must be from 1 to the beam, {search.beam}, but is {nbest}: widen the beam, "
                "or ask for fewer"
            )
        return search

    def _parts(self, line: str, number: int, strict: bool) -> list[list[str]]:
        # JSON may hold halves of characters, which no subword model takes.
        line = line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        parts = self._source.split(line, self.longest)
        if strict and len(parts) > 1:
            raise TooLong(number, sum(map(len, parts)), self.longest)
        return parts

    def _batches(self, parts: Sequence[Sequence[str]]) -> Iterator[list[int]]:
        """Numbers of parts that go together: the longest first, as they take the most memory."""
        batch: list[int] = []
        for place in sorted(range(len(parts)), key=lambda place: -len(parts[place])):
            # all are padded to the first one's length
            if batch and (len(batch) + 1) * (len(parts[batch[0]]) + 1) > self.max_tokens:
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    def _joined(self, parts: list[list[Hypothesis]], rank: int) -> Translation:
        """The translation of this rank of a line, from those of its parts."""
        nothing = Hypothesis([], 0.0)
        chosen = [some[rank] if rank < len(some) else nothing for some in parts]
        texts = [self._target.decode(one.tokens) for one in chosen]
        score = sum(one.score for one in chosen) / max(1, len(chosen))
        return Translation(" ".join(filter(None, texts)), score)
