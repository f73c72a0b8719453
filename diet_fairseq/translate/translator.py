"""`Translator`, which translates lines of text with a trained model."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UserError
from ..text.languages import explain_other_script, join_sentences
from ..text.tokenizer import Tokenizer
from .engine import Engine, Hypothesis, Search
from .model_files import ModelOptions, check_ensemble, resolve_model
from .model_json import ModelDescription

logger = logging.getLogger(__name__)

#: one line, or a list of lines
Lines = TypeVar("Lines", str, list[str])
#: largest number of source subwords in a batch, including padding
MAX_TOKENS = 4000
#: limit of source subwords of models without a limit: fairseq's default for
#: --max-source-positions, minus 1 for </s>
MAX_SOURCE_LENGTH = 1023


@dataclass(frozen=True)
class Translation:
    """The translation of a line, and its score.

    Attributes:
        text: the translation
        score: the log-probability divided by the length penalty. If the line was split, the score
            is the mean over the parts. The score of a blank line is 0. The score of a translation
            that the search did not find is -inf
    """

    text: str
    score: float


class TooLong(UserError):
    """The error of ``strict`` for a line that has more subwords than the model's limit.

    Attributes:
        number: the number of the line, from 1
        subwords: the number of subwords of the line
        max_subwords: the limit
    """

    def __init__(self, number: int, subwords: int, max_subwords: int) -> None:
        super().__init__(
            f"line {number} has {subwords:,} subwords, but the model's limit is {max_subwords:,}: "
            "shorten it, or translate without strict"
        )
        self.number, self.subwords, self.max_subwords = number, subwords, max_subwords

    @property
    def longest(self) -> int:
        """The name of `max_subwords` in 0.3."""
        return self.max_subwords


class Translator:
    """Translates lines of plain text. Any number of threads can share one `Translator`.

        from diet_fairseq import Translator

        translator = Translator("wmt18/en-de/runs/diet_rel-base-s1-0f3ac210")
        translator.translate("A man rides a horse.")
        translator.translate(["One line.", "Another."])
        Translator(["runs/seed1", "runs/seed2"])  # an ensemble

    Args:
        model: a folder with ``model.json`` (a run or an exported model), or a checkpoint; several
            checkpoints with one vocabulary form an ensemble
        data: folder of fairseq's dictionaries, if there is no ``model.json`` beside the checkpoint
        subwords: SentencePiece model, codes of subword-nmt or fastBPE, GPT-2's ``vocab.bpe``, or
            "none", if there is no ``model.json`` beside the checkpoint
        tokenizer: tokenizer before the subwords, "moses" or "none", if there is no ``model.json``
            beside the checkpoint
        source_lang: source language (default: the model's source language)
        target_lang: target language (default: the model's target language)
        device: device such as "cpu" or "cuda:0"
        threads: number of CPU threads of the process (default: PyTorch's or CTranslate2's choice)
        max_tokens: largest number of source subwords in a batch
        position_temperature: softmax temperature of attention; a value below 1 sharpens attention
            on long inputs (default: the checkpoint's value, normally 1)
        any_ctranslate2: whether to load a CTranslate2 folder that ``export ctranslate2`` did not
            write; a forged folder can corrupt memory

    Attributes:
        source_lang, target_lang: the default languages
        targets: the target languages of every source language
        max_source_length: limit of subwords of a line; a longer line is split
        search: the default beam size and length penalty

    Raises:
        UserError: no model is given, a file is missing or not valid, or the files don't belong
            together
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
        options = ModelOptions(
            data=Path(data) if data else None,
            subwords=Path(subwords) if subwords else None,
            tokenizer=tokenizer,
            source_lang=source_lang,
            target_lang=target_lang,
            position_temperature=position_temperature,
        )
        models = [model] if isinstance(model, str | PathLike) else model
        if not models:
            raise UserError(
                "model must be a path or a list of paths, but is an empty list: give a folder with "
                "model.json, or a checkpoint"
            )
        descriptions = [resolve_model(Path(path), options) for path in models]
        description = descriptions[0]
        self.source_lang, self.target_lang = description.source_lang, description.target_lang
        self.search = Search(
            description.beam, lenpen=description.lenpen, penalty=description.penalty
        )
        self.max_tokens = max_tokens
        self._directions = description.all_directions
        self.targets = self._directions.targets
        self._tokenizers = dict(zip(description.languages, description.tokenizers, strict=True))
        self._warned: set[tuple[str, str]] = set()  # directions
        self._engine = load_engine(descriptions, device, threads, any_ctranslate2)
        limits = self._engine.max_source_length, description.max_source_length
        self.max_source_length: int = min(
            (limit for limit in limits if limit is not None), default=MAX_SOURCE_LENGTH
        )

    @property
    def longest(self) -> int:
        """The name of `max_source_length` in 0.3."""
        return self.max_source_length

    def translate(
        self,
        text: Lines,
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
        beam: int | None = None,
        lenpen: float | None = None,
        no_unk: bool = False,
        strict: bool = False,
    ) -> Lines:
        """The translation of one line, or a list of the translations of several lines.

        Each text is one line, even if it contains line breaks, and its translation is one line. The
        translation of a blank line is blank. A line that is too long is split at the ends of its
        sentences; with ``strict`` it raises `TooLong`.

        Args:
            source_lang: source language (default: the attribute `source_lang`)
            target_lang: target language (default: the attribute `target_lang`)
            beam: beam size
            lenpen: exponent of the length penalty
            no_unk: forbid <unk>, which stands for characters that the vocabulary lacks

        Raises:
            UserError: the model does not translate between these languages
        """
        lines = [text] if isinstance(text, str) else text
        candidates = self.candidates(
            lines, source_lang=source_lang, target_lang=target_lang,
            beam=beam, lenpen=lenpen, no_unk=no_unk, strict=strict,
        )  # fmt: skip
        best = [translations[0].text for translations in candidates]
        return best[0] if isinstance(text, str) else best

    def candidates(
        self,
        lines: Sequence[str],
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
        nbest: int = 1,
        beam: int | None = None,
        lenpen: float | None = None,
        no_unk: bool = False,
        strict: bool = False,
        done: Callable[[int], Any] = lambda lines: None,
    ) -> list[list[Translation]]:
        """The ``nbest`` best translations of every line, best first.

        If the search finds fewer translations, the others are empty and have a score of -inf. All
        translations of a blank line are blank. The other parameters are as in `translate`.

        Args:
            done: a function that is called after each batch, with the number of lines that the
                batch completed

        Raises:
            UserError: ``nbest`` exceeds ``beam``, or one of them is less than 1; or the model does
                not translate between these languages
        """
        source, target = source_lang or self.source_lang, target_lang or self.target_lang
        self._directions.check(source, target)
        self._check_script(lines, source, target)
        marks = self._directions.mark(source, target)
        max_length = max(1, self.max_source_length - marks.source_length)
        search = replace(
            self.search,
            marks=marks,
            nbest=nbest,
            beam=self.search.beam if beam is None else beam,
            lenpen=self.search.lenpen if lenpen is None else lenpen,
            no_unk=no_unk,
        )
        if search.beam < 1:
            raise UserError(f"beam must be at least 1, but is {search.beam}")
        if not 1 <= nbest <= search.beam:
            raise UserError(
                f"nbest must be from 1 to the beam, {search.beam}, but is {nbest}: widen the beam, "
                "or ask for fewer"
            )
        parts: list[tuple[int, list[str]]] = []
        for number, line in enumerate(lines):
            # JSON can contain unpaired surrogates, which subword models reject.
            text = line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            parts_of_line = self._tokenizer(source).split(text, max_length)
            if strict and len(parts_of_line) > 1:
                raise TooLong(number + 1, sum(map(len, parts_of_line)), max_length)
            parts += [(number, part) for part in parts_of_line]
        pending = Counter(number for number, _ in parts)
        done(len(lines) - len(pending))
        results: list[dict[int, list[Hypothesis]]] = [{} for _ in lines]  # by index of the part
        for batch in self._batches([part for _, part in parts]):
            hypotheses = self._engine.translate([parts[index][1] for index in batch], search)
            numbers = [parts[index][0] for index in batch]
            for index, number, beam_of_part in zip(batch, numbers, hypotheses, strict=True):
                results[number][index] = beam_of_part
            pending -= Counter(numbers)
            done(len(set(numbers) - pending.keys()))
        tokenizer = self._tokenizer(target)
        return [
            [
                self._join([line[index] for index in sorted(line)], rank, tokenizer)
                for rank in range(nbest)
            ]
            for line in results
        ]

    def _check_script(self, lines: Sequence[str], source: str, target: str) -> None:
        """Log a warning, once for each direction, if a text is not in the source's script."""
        if (source, target) in self._warned:
            return
        if reason := explain_other_script(lines, source, target):
            self._warned.add((source, target))
            logger.warning("%s; check the direction %s to %s", reason, source, target)

    def _tokenizer(self, language: str) -> Tokenizer:
        if language not in self._tokenizers:
            tokenizer = next(iter(self._tokenizers.values()))
            self._tokenizers[language] = tokenizer.for_language(language)
        return self._tokenizers[language]

    def _batches(self, parts: Sequence[Sequence[str]]) -> Iterator[list[int]]:
        """Batches of indices into ``parts``; the longest are first and need the most memory."""
        batch: list[int] = []
        for index in sorted(range(len(parts)), key=lambda index: -len(parts[index])):
            # parts are padded to the length of the first part
            if batch and (len(batch) + 1) * (len(parts[batch[0]]) + 1) > self.max_tokens:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    @staticmethod
    def _join(parts: list[list[Hypothesis]], rank: int, tokenizer: Tokenizer) -> Translation:
        """The translation of this rank of a line, joined from the translations of its parts."""
        missing = Hypothesis([], -math.inf)
        ranked = [part[rank] if rank < len(part) else missing for part in parts]
        texts = [tokenizer.decode(hypothesis.tokens) for hypothesis in ranked]
        score = sum(hypothesis.score for hypothesis in ranked) / max(1, len(ranked))
        return Translation(join_sentences(texts), score)


def load_engine(
    descriptions: Sequence[ModelDescription],
    device: str = "cpu",
    threads: int | None = None,
    any_ctranslate2: bool = False,
) -> Engine:
    """The engine of a model, or of several models as an ensemble.

    PyTorch and fairseq are imported only for fairseq's checkpoints.

    The arguments are as in `Translator`.

    Raises:
        UserError: a model can't be loaded, or the models don't belong together
    """
    first, *others = descriptions
    for description in others:
        check_ensemble(first, description)
    if first.engine == "fairseq":
        from .fairseq_engine import FairseqEngine, find_device
        from .loading import load_model

        torch_device = find_device(device)
        return FairseqEngine([load_model(model) for model in descriptions], torch_device, threads)
    if first.engine == "ctranslate2":
        from .ctranslate2_engine import CTranslate2Engine

        return CTranslate2Engine(first, device, threads, any_ctranslate2)
    raise UserError(
        f"{first.folder} is a model for {first.engine}, which can't be used here: load it with "
        f"{first.engine}, or export the checkpoint with `diet-fairseq export ctranslate2`"
    )
