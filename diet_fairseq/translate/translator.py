"""`Translator`, which translates lines of text with a trained model."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UserError
from ..text.languages import explain_other_script, find_base_language, join_sentences
from ..text.sentences import split_sentences
from ..text.tokenizer import Tokenizer
from .engine import Engine, Hypothesis, Search
from .model_files import ModelOptions, check_ensemble, resolve_model
from .model_json import ModelDescription
from .omissions import Omissions
from .translation import Sentence, Translation, join_translations

logger = logging.getLogger(__name__)

#: one line, or a list of lines
Lines = TypeVar("Lines", str, list[str])
#: largest number of source subwords in a batch, including padding
MAX_TOKENS = 4000
#: limit of source subwords of models without a limit: fairseq's default for
#: --max-source-positions, minus 1 for </s>
MAX_SOURCE_LENGTH = 1023
#: largest number of CPU threads
MAX_THREADS = 1024


class TooLong(UserError):
    """The error of ``strict`` for a sentence that has more subwords than the model's limit.

    Attributes:
        number: the number of the line, from 1
        subwords: the number of subwords of the sentence
        max_subwords: the limit
    """

    def __init__(self, number: int, subwords: int, max_subwords: int, name: str = "") -> None:
        super().__init__(
            f"{name or f'line {number}'} has {subwords:,} subwords, but the model's limit is "
            f"{max_subwords:,}: shorten it, or translate without strict"
        )
        self.number, self.subwords, self.max_subwords = number, subwords, max_subwords


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
        split_sentences: whether a line is translated sentence by sentence (default: yes, if source
            and target are two different known languages and most lines of the training data have
            one sentence; see ``sentences_per_line`` of ``model.json``)
        position_temperature: softmax temperature of attention; a value below 1 sharpens attention
            on long inputs (default: the checkpoint's value, normally 1)
        any_ctranslate2: whether to load a CTranslate2 folder that ``export ctranslate2`` did not
            write; a forged folder can corrupt memory
        no_repeat_ngram_size: as in `translate` (default: from ``model.json``, otherwise 0)
        max_len_a, max_len_b: as in `translate` (default: from ``model.json``, otherwise 1 and 50)

    Attributes:
        source_lang, target_lang: the default languages
        targets: the target languages of every source language
        max_source_length: limit of subwords of a sentence; a longer sentence is cut
        search: the default options of the search

    Raises:
        UserError: no model is given, an argument is not valid, a file is missing or not valid, or
            the files don't belong together
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
        split_sentences: bool | None = None,
        any_ctranslate2: bool = False,
        no_repeat_ngram_size: int | None = None,
        max_len_a: float | None = None,
        max_len_b: int | None = None,
    ) -> None:
        if threads is not None:
            _check_integer("threads", threads, MAX_THREADS)
        _check_integer("max_tokens", max_tokens)
        _check_choice("split_sentences", split_sentences)
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
        search = Search(
            description.beam,
            lenpen=description.lenpen,
            penalty=description.penalty,
            no_repeat_ngram_size=description.no_repeat_ngram_size,
            max_len_a=description.max_len_a,
            max_len_b=description.max_len_b,
            min_length=description.min_target_length,
            suppress_sequences=description.suppress_sequences,
            end_tokens=description.end_tokens,
        )
        self.search = search.replace_options(
            no_repeat_ngram_size=no_repeat_ngram_size, max_len_a=max_len_a, max_len_b=max_len_b
        )
        self.max_tokens, self.split_sentences = max_tokens, split_sentences
        self._description = description
        self._directions = description.all_directions
        self.targets = self._directions.targets
        self._tokenizers = dict(zip(description.languages, description.tokenizers, strict=True))
        self._warned: set[tuple[str, str]] = set()  # directions
        self._engine = load_engine(descriptions, device, threads, any_ctranslate2)
        limits = self._engine.max_source_length, description.max_source_length
        self.max_source_length: int = min(
            (limit for limit in limits if limit is not None), default=MAX_SOURCE_LENGTH
        )

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
        split_sentences: bool | None = None,
        no_repeat_ngram_size: int | None = None,
        max_len_a: float | None = None,
        max_len_b: int | None = None,
    ) -> Lines:
        """The translation of one line, or a list of the translations of several lines.

        Each text is one line, even if it contains line breaks, and its translation is one line. The
        translation of a blank line is blank. A sentence that is too long is cut before a word; with
        ``strict`` it raises `TooLong`.

        Args:
            source_lang: source language in any spelling, such as ``DE`` or ``de-AT`` for ``de``
                (default: the attribute `source_lang`)
            target_lang: target language (default: the attribute `target_lang`)
            beam: beam size
            lenpen: exponent of the length penalty
            no_unk: forbid <unk>, which stands for characters that the vocabulary lacks
            split_sentences: whether lines are translated sentence by sentence (default: the
                attribute `split_sentences`, or the model's default)
            no_repeat_ngram_size: forbid to repeat sequences of this number of subwords in a
                translation; 0 forbids nothing
            max_len_a, max_len_b: a translation has at most a * S + b subwords, where S is the
                number of subwords of its source plus 1 for </s>, as in fairseq-generate

        Raises:
            UserError: the model does not translate between these languages, or a number is too
                small
        """
        lines = [text] if isinstance(text, str) else text
        candidates = self.candidates(
            lines, source_lang=source_lang, target_lang=target_lang,
            beam=beam, lenpen=lenpen, no_unk=no_unk, strict=strict,
            split_sentences=split_sentences,
            no_repeat_ngram_size=no_repeat_ngram_size, max_len_a=max_len_a, max_len_b=max_len_b,
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
        split_sentences: bool | None = None,
        warn: bool = True,
        no_repeat_ngram_size: int | None = None,
        max_len_a: float | None = None,
        max_len_b: int | None = None,
        done: Callable[[int], Any] = lambda lines: None,
    ) -> list[list[Translation]]:
        """The ``nbest`` best translations of every line, best first.

        If the search finds fewer translations, the others are empty and have a score of -inf. All
        translations of a blank line are blank. The other parameters are as in `translate`.

        Args:
            warn: whether to log a warning about sentences whose translation may lack text
            done: a function that is called after each batch, with the number of lines that the
                batch completed

        Raises:
            UserError: ``lines`` is not a list; ``nbest`` exceeds ``beam``, or one of them is less
                than 1; ``lenpen`` is not finite; or the model does not translate between these
                languages
        """
        if isinstance(lines, str | bytes):
            raise UserError("lines must be a list of lines, but is one text: write [text]")
        _check_choice("split_sentences", split_sentences)
        source, target = self._directions.match(
            source_lang or self.source_lang, target_lang or self.target_lang
        )
        self._directions.check(source, target)
        self._check_script(lines, source, target)
        framing = self._directions.frame(source, target)
        max_length = max(1, self.max_source_length - framing.source_length)
        search = self.search.replace_options(
            framing=framing,
            nbest=nbest,
            beam=beam,
            lenpen=lenpen,
            no_unk=no_unk,
            no_repeat_ngram_size=no_repeat_ngram_size,
            max_len_a=max_len_a,
            max_len_b=max_len_b,
        )
        _check_integer("beam", search.beam)
        if not isinstance(search.lenpen, Real) or not math.isfinite(search.lenpen):
            raise UserError(f"lenpen must be a finite number, but is {search.lenpen!r}")
        if not isinstance(nbest, Integral) or not 1 <= nbest <= search.beam:
            raise UserError(
                f"nbest must be from 1 to the beam, {search.beam}, but is {nbest!r}: widen the "
                "beam, or ask for fewer"
            )
        if split_sentences is None:
            split_sentences = self.splits(source, target)
        sentences: list[tuple[int, str, int]] = []  # line, text, number of subwords
        parts: list[tuple[int, list[str]]] = []  # index of the sentence, subwords
        for number, line in enumerate(lines):
            texts = self.split(line, source) if split_sentences else [_replace_surrogates(line)]
            for place, text in enumerate(texts, 1):
                parts_of_sentence = self._tokenizer(source).split(text, max_length)
                subwords = sum(map(len, parts_of_sentence))
                if strict and len(parts_of_sentence) > 1:
                    name = f"sentence {place} of line {number + 1}" if len(texts) > 1 else ""
                    raise TooLong(number + 1, subwords, max_length, name)
                if parts_of_sentence:
                    parts += [(len(sentences), part) for part in parts_of_sentence]
                    sentences.append((number, text, subwords))
        pending = Counter(sentences[index][0] for index, _ in parts)
        done(len(lines) - len(pending))
        results: list[list[Hypothesis]] = [[] for _ in parts]
        for batch in self._batches([part for _, part in parts]):
            beams = self._engine.translate([parts[index][1] for index in batch], search)
            for index, beam_of_part in zip(batch, beams, strict=True):
                results[index] = beam_of_part
            numbers = [sentences[parts[index][0]][0] for index in batch]
            pending -= Counter(numbers)
            done(len(set(numbers) - pending.keys()))
        beams_of_sentences: list[list[list[Hypothesis]]] = [[] for _ in sentences]
        for (index, _), beam_of_part in zip(parts, results, strict=True):
            beams_of_sentences[index].append(beam_of_part)
        tokenizer = self._tokenizer(target)
        translations: list[list[list[Translation]]] = [[] for _ in lines]
        for (number, text, subwords), beams in zip(sentences, beams_of_sentences, strict=True):
            joined = [_join_parts(beams, rank, tokenizer) for rank in range(nbest)]
            translations[number].append(
                [replace(t, sentences=(Sentence(text, t.text, t.score, subwords),)) for t in joined]
            )
        candidates = [join_translations(line, nbest) for line in translations]
        if warn and (omissions := self.find_omissions(source, target)):
            omissions.add(line[0] for line in candidates)
            omissions.log()
        return candidates

    def split(self, line: str, source_lang: str | None = None) -> list[str]:
        """The sentences of a line, without the spaces between them; none if the line is blank."""
        source = source_lang or self.source_lang
        text = self._tokenizer(source).normalise(_replace_surrogates(line))
        return [part for part in map(str.strip, split_sentences(text, source)) if part]

    def splits(self, source_lang: str | None = None, target_lang: str | None = None) -> bool:
        """Whether a line is translated sentence by sentence by default."""
        if self.split_sentences is not None:
            return self.split_sentences
        return self._description.has_lines_of_one_sentence and self._differ(
            source_lang or self.source_lang, target_lang or self.target_lang
        )

    def find_omissions(self, source_lang: str, target_lang: str) -> Omissions | None:
        """The `Omissions` of a direction; None if source and target are not two languages."""
        if not self._differ(source_lang, target_lang):
            return None
        return Omissions(self._description.training_source_length)

    @staticmethod
    def _differ(source: str, target: str) -> bool:
        """Whether source and target are two different known languages."""
        languages = find_base_language(source), find_base_language(target)
        return None not in languages and languages[0] != languages[1]

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


def _join_parts(parts: list[list[Hypothesis]], rank: int, tokenizer: Tokenizer) -> Translation:
    """The translation of this rank of a sentence, joined from the translations of its parts."""
    missing = Hypothesis([], -math.inf)
    ranked = [part[rank] if rank < len(part) else missing for part in parts]
    texts = [tokenizer.decode(hypothesis.tokens) for hypothesis in ranked]
    return Translation(join_sentences(texts), sum(h.score for h in ranked) / len(ranked))


def _check_integer(name: str, value: Any, most: int | None = None) -> None:
    """Refuse a value that is not an integer from 1 to ``most``."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise UserError(f"{name} must be an integer, but is {value!r}")
    if int(value) < 1 or (most is not None and int(value) > most):
        rule = "at least 1" if most is None else f"from 1 to {most:,}"
        raise UserError(f"{name} must be {rule}, but is {value}")


def _check_choice(name: str, value: Any) -> None:
    """Refuse a value that is not True, False or None, such as the words of a command."""
    if value not in (True, False, None):
        raise UserError(f"{name} must be True, False or None, but is {value!r}")


def _replace_surrogates(line: str) -> str:
    """The line without unpaired surrogates, which JSON can contain and subword models reject."""
    return line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
