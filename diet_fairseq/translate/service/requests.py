"""Translation requests with LibreTranslate's fields, as JSON or as a form."""

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import parse_qsl

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ...files import describe_validation_error
from ..directions import name_some
from .batching import BatchKey

if TYPE_CHECKING:
    from ..translator import Translation, Translator

FORM = "application/x-www-form-urlencoded"
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


class TranslationRequest(BaseModel, strict=True):
    """The fields of a request; unknown fields are ignored."""

    q: str | list[str]  # a text of one or several lines, or a list of texts
    source: str | None = None  # None: the service's default
    target: str | None = None
    format: Literal["text"] = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0
    scores: bool = False
    sentences: bool = False
    split_sentences: bool | None = None  # None: the model's default

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
            fields["scores"] = [round(line[0].score, 6) for line in candidates]
        if self.sentences:
            fields["sentences"] = [
                [
                    {"source": part.source, "translation": part.text, "score": round(part.score, 6)}
                    for part in line[0].sentences
                ]
                for line in candidates
            ]
        return fields


async def read_request(
    request: Request, translator: "Translator", limits: Limits
) -> tuple[BatchKey, TranslationRequest]:
    """The direction and the fields of a request, checked against the model and the limits.

    Raises:
        HTTPException: a field is not valid, or the body is too large
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if media_type == FORM:
            fields = TranslationRequest.model_validate_strings(await _read_form(request, limits))
        else:
            values = await _read_json(request, media_type, limits)
            fields = TranslationRequest.model_validate(values)
    except ValidationError as error:
        raise HTTPException(400, describe_validation_error(error)) from error
    targets = translator.targets
    source = fields.source or translator.source_lang
    target = fields.target or translator.target_lang
    if source == "auto" and len(targets) == 1:
        source = translator.source_lang
    if source not in targets:
        rule = f"this model translates {name_some(targets)}"
        raise HTTPException(400, f"source {source[:40]!r} is not supported: {rule}")
    if target not in targets[source]:
        rule = f"this model translates {source} to {name_some(targets[source])}"
        raise HTTPException(400, f"target {target[:40]!r} is not supported: {rule}")
    if (count := len(fields.lines)) > limits.waiting:  # before the lines are split
        raise HTTPException(400, f"q has {count:,} lines, more than {limits.waiting:,}: send fewer")
    for number, length in enumerate(map(len, fields.lines), 1):
        if length > limits.characters:
            rule = f"{length:,} characters, more than {limits.characters:,}: shorten it"
            raise HTTPException(400, f"line {number} of q has {rule}")
    if fields.alternatives >= (beam := translator.search.beam):
        rule = f"alternatives must be at most {beam - 1}, because the beam is {beam}"
        raise HTTPException(400, f"{rule}, but is {fields.alternatives}")
    return BatchKey(source, target, 1 + fields.alternatives), fields


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


async def _read_form(request: Request, limits: Limits) -> dict[str, str]:
    """The fields of a form, as LibreTranslate's own client sends them."""
    if "origin" in request.headers:
        # Browsers send forms across sites without a preflight request, always with this header.
        raise HTTPException(415, "forms of web pages are refused: send application/json")
    body = await _read_body(request, limits)
    try:
        return dict(parse_qsl(body.decode(), errors="strict", max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise HTTPException(400, "the body is not a valid form in UTF-8: send q=TEXT") from error


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
    async for part in request.stream():
        body += part
        if len(body) > limits.body:
            rule = f"more than {limits.body:,} bytes: send less text"
            raise HTTPException(413, f"the body has {rule}")
    return body
