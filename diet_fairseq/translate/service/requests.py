"""Requests with LibreTranslate's fields, as JSON or as a form."""

import asyncio
import codecs
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_core import from_json
from python_multipart.multipart import parse_options_header
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from ...files import describe_validation_error
from ...text.languages import match_language
from ..directions import summarize_names
from ..translation import json_score
from .batching import BatchKey
from .detection import LanguageDetector

if TYPE_CHECKING:
    from ..translation import Translation
    from ..translator import Translator

FORM, MULTIPART_FORM = "application/x-www-form-urlencoded", "multipart/form-data"
#: value of ``source`` for a language that the service detects
AUTO = "auto"
Fields = TypeVar("Fields", bound=BaseModel)
#: largest number of fields in a form
MAX_FIELDS = 100


@dataclass(frozen=True)
class Limits:
    """The limits of requests. A request that exceeds a limit gets the status in parentheses.

    Attributes:
        body: bytes of a request's body (413)
        characters: characters in a line (400)
        waiting: sentences of all requests in the queue (503), and of a request (400)
        seconds: time from the headers of a request to its answer (504)
        batch: sentences in a batch, or fewer long sentences (`batching.sentence_weight`)
    """

    body: int = 10 * 1000 * 1000
    characters: int = 5000
    waiting: int = 2000
    seconds: float = 60
    batch: int = 64


class TextRequest(BaseModel, strict=True):
    """The text of a request; unknown fields are ignored."""

    q: str | list[str]  # a text of one or several lines, or a list of texts

    @field_validator("q", mode="plain")
    @classmethod
    def _check_texts(cls, q: Any) -> Any:
        texts = q if isinstance(q, list) else [q]
        if not q or not all(isinstance(text, str) for text in texts):
            raise ValueError("must be a text or a list of texts, and not empty")
        return q

    @cached_property
    def texts(self) -> list[list[str]]:
        """The lines of each text."""
        return [text.split("\n") for text in ([self.q] if isinstance(self.q, str) else self.q)]

    @cached_property
    def lines(self) -> list[str]:
        """The lines of all texts."""
        return [line for text in self.texts for line in text]

    def check(self, limits: Limits) -> None:
        """Refuse too many lines, and lines that are too long.

        Raises:
            HTTPException: a limit is exceeded
        """
        if (count := len(self.lines)) > limits.waiting:  # before the lines are split
            rule = f"{count:,} lines, more than {limits.waiting:,}: send fewer"
            raise HTTPException(400, f"q has {rule}")
        for number, length in enumerate(map(len, self.lines), 1):
            if length > limits.characters:
                rule = f"{length:,} characters, more than {limits.characters:,}: shorten it"
                raise HTTPException(400, f"line {number} of q has {rule}")


class TranslationRequest(TextRequest, strict=True):
    """The fields of a request for a translation; unknown fields are ignored."""

    source: str | None = None  # None: the service's default
    target: str | None = None
    format: Literal["text"] = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0
    scores: bool = False
    sentences: bool = False
    split_sentences: bool | None = None  # None: the model's default

    def answer(self, candidates: "list[list[Translation]]") -> dict[str, Any]:
        """The fields of the answer; each field is a list if ``q`` is a list.

        Args:
            candidates: the translations of each line, best first
        """
        remaining = iter(candidates)
        answers = [self._answer_text(list(islice(remaining, len(text)))) for text in self.texts]
        if isinstance(self.q, str):
            return answers[0]
        return {name: [answer[name] for answer in answers] for name in answers[0]}

    def _answer_text(self, candidates: "list[list[Translation]]") -> dict[str, Any]:
        best, *others = (
            "\n".join(line.text for line in rank) for rank in zip(*candidates, strict=True)
        )
        fields: dict[str, Any] = {"translatedText": best}
        if self.alternatives:
            fields["alternatives"] = others
        if self.scores:
            fields["scores"] = [json_score(line[0].score) for line in candidates]
        if self.sentences:
            fields["sentences"] = [
                [
                    {
                        "source": part.source,
                        "translation": part.text,
                        "score": json_score(part.score),
                    }
                    for part in line[0].sentences
                ]
                for line in candidates
            ]
        return fields


async def read_request(
    request: Request,
    translator: "Translator",
    limits: Limits,
    detector: LanguageDetector | None = None,
) -> tuple[BatchKey, TranslationRequest, dict[str, Any] | None]:
    """The direction and the fields of a request, and its language if the service detected it.

    Args:
        detector: the detector of the language of a request with the source `AUTO`; None: not
            installed

    Raises:
        HTTPException: a field is not valid, or the body is too large
    """
    fields = await read_fields(request, TranslationRequest, limits)
    fields.check(limits)
    if fields.alternatives >= (beam := translator.search.beam):
        rule = f"alternatives must be at most {beam - 1}, because the beam is {beam}"
        raise HTTPException(400, f"{rule}, but is {fields.alternatives}")
    targets, detected = translator.targets, None
    source = fields.source or translator.source_lang
    target = fields.target or translator.target_lang
    if source == AUTO and detector is not None:
        detected = (await asyncio.to_thread(detector.detect, "\n".join(fields.lines)))[0]
        source = detected["language"]
    elif source == AUTO and len(targets) == 1:
        source = translator.source_lang
    elif source == AUTO:
        rule = "install diet_fairseq[detect], or send the language"
        raise HTTPException(400, f"source 'auto' needs the library py3langid: {rule}")
    source = _find_language("source", source, targets, "this model translates")
    rule = f"this model translates {source} to"
    target = _find_language("target", target, targets[source], rule)
    return BatchKey(source, target, 1 + fields.alternatives), fields, detected


def _find_language(field: str, code: str, languages: Iterable[str], rule: str) -> str:
    """The language that a user's code stands for, in the model's spelling."""
    names = match_language(code, languages)
    if len(names) == 1:
        return names[0]
    if names:
        text = f"{field} {code!r} is ambiguous: send one of {summarize_names(names)}"
    else:
        text = f"{field} {code[:40]!r} is not supported: {rule} {summarize_names(languages)}"
    raise HTTPException(400, text)


async def read_fields(request: Request, model: type[Fields], limits: Limits) -> Fields:
    """The fields of a request in JSON, in a form, or in the address of a request without a body.

    Raises:
        HTTPException: a field is not valid, or the body is too large
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_query = not media_type and bool(request.scope["query_string"])
    try:
        if is_query or media_type in (FORM, MULTIPART_FORM):
            if "origin" in request.headers:
                # Browsers send forms across sites without a preflight request, always with this
                # header.
                text = "forms of web pages are refused: send application/json"
                raise HTTPException(415, text)
            if media_type == MULTIPART_FORM:
                return model.model_validate_strings(await _read_multipart_form(request, limits))
            form = request.scope["query_string"] if is_query else await _read_body(request, limits)
            return model.model_validate_strings(_parse_form(form))
        return model.model_validate(await _read_json(request, media_type, limits))
    except ValidationError as error:
        raise HTTPException(400, describe_validation_error(error)) from error


def split_lines(
    translator: "Translator", key: BatchKey, fields: TranslationRequest
) -> list[list[str]]:
    """The sentences of each line of a request; a line that is not split is one sentence."""
    is_split = fields.split_sentences
    if is_split is None:
        is_split = translator.splits(key.source_lang, key.target_lang)
    if not is_split:
        return [[line] for line in fields.lines]
    return [translator.split(line, key.source_lang) or [line] for line in fields.lines]


def _parse_form(form: bytes | bytearray) -> dict[str, str]:
    """The fields of a form, as LibreTranslate's own client sends them; empty fields are missing."""
    try:
        return dict(parse_qsl(form.decode(), errors="strict", max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise HTTPException(400, "the body is not a valid form in UTF-8: send q=TEXT") from error


async def _read_multipart_form(request: Request, limits: Limits) -> dict[str, str]:
    """The fields of a multipart form, as ``curl --form`` sends them; empty fields are missing."""
    rule = f"with at most {MAX_FIELDS} fields and without files: send the field q"
    text = f"the body is not a valid form in UTF-8 {rule}"
    _, parameters = parse_options_header(request.headers["content-type"])
    if parameters.get(b"charset", b"utf-8").lower() != b"utf-8":  # some codecs are slow
        raise HTTPException(400, text)
    try:
        async with aclosing(_check_utf8(_stream_body(request, limits))) as stream:
            parser = MultiPartParser(
                request.headers,
                stream,
                max_files=0,
                max_fields=MAX_FIELDS,
                max_part_size=limits.body,
            )
            form = await parser.parse()
    except (MultiPartException, UnicodeDecodeError) as error:
        raise HTTPException(400, text) from error
    return {name: value for name, value in form.multi_items() if value and isinstance(value, str)}


async def _check_utf8(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The parts of a stream; Starlette's parser decodes text that is not UTF-8 as Latin-1.

    Raises:
        UnicodeDecodeError: the stream is not UTF-8
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    async for part in stream:
        decoder.decode(part)
        yield part


async def _read_json(request: Request, media_type: str, limits: Limits) -> dict[str, Any]:
    if media_type != "application/json":
        # browsers send other types across sites without a preflight request
        rule = f"Content-Type must be application/json, but is {media_type[:40]!r}: send JSON"
        raise HTTPException(415, rule)
    try:
        values = from_json(await _read_body(request, limits))
    except ValueError as error:
        raise HTTPException(
            400, "the body is not valid JSON in UTF-8: send an object with q"
        ) from error
    if not isinstance(values, dict):
        raise HTTPException(400, "the body is not a JSON object: send an object with q")
    return values


async def _read_body(request: Request, limits: Limits) -> bytearray:
    body = bytearray()
    async for part in _stream_body(request, limits):
        body += part
    return body


async def _stream_body(request: Request, limits: Limits) -> AsyncGenerator[bytes, None]:
    """The parts of a body, as they arrive, up to the limit of bytes."""
    length = 0
    async for part in request.stream():
        length += len(part)
        if length > limits.body:
            rule = f"more than {limits.body:,} bytes: send less text"
            raise HTTPException(413, f"the body has {rule}")
        yield part
