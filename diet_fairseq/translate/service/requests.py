"""Requests to translate: LibreTranslate's fields, as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ...files import describe_validation_error
from ..directions import name_some
from .batching import Direction

if TYPE_CHECKING:
    from ..translator import Translation


@dataclass(frozen=True)
class Limits:
    """Limits of requests."""

    body: int = 10 * 1000 * 1000  # bytes of a request (413)
    characters: int = 5000  # in a line (400)
    waiting: int = 2000  # lines of all requests in the queue (503)
    seconds: float = 60  # from the headers of a request to its answer (504)
    batch: int = 64  # lines in a batch; fewer if they are long (`batching.line_weight`)


class TranslationRequest(BaseModel, strict=True):
    """The fields of a request; unknown ones are ignored."""

    q: Annotated[str, Field(min_length=1)]  # one line or several
    source: str | None = None  # None: the model's first
    target: str | None = None
    format: Literal["text"] = "text"
    scores: bool = False

    @property
    def lines(self) -> list[str]:
        return self.q.split("\n")

    def answer(self, translations: "list[Translation]") -> dict[str, Any]:
        """The answer's fields, given the translations of all lines."""
        fields: dict[str, Any] = {"translatedText": "\n".join(line.text for line in translations)}
        if self.scores:
            fields["scores"] = [round(line.score, 6) for line in translations]
        return fields


async def read_request(
    request: Request, default: Direction, targets: Mapping[str, Sequence[str]], limits: Limits
) -> tuple[Direction, TranslationRequest]:
    """The direction and the fields of a request, checked against the limits.

    Args:
        default: the direction of a request that names none
        targets: the target languages of every source language

    Raises:
        HTTPException: a field is not valid, or the body is too large
    """
    values = await _read_json(request, limits.body)
    try:
        fields = TranslationRequest.model_validate(values)
    except ValidationError as error:
        raise HTTPException(400, describe_validation_error(error)) from error
    source, target = fields.source or default[0], fields.target or default[1]
    if source == "auto" and len(targets) == 1:
        source = default[0]
    if source not in targets:
        rule = f"this model translates {name_some(targets)}"
        raise HTTPException(400, f"source {source[:40]!r} is not supported: {rule}")
    if target not in targets[source]:
        rule = f"this model translates {source} to {name_some(targets[source])}"
        raise HTTPException(400, f"target {target[:40]!r} is not supported: {rule}")
    if (count := len(fields.lines)) > limits.waiting:
        raise HTTPException(400, f"q has {count:,} lines, more than {limits.waiting:,}: send fewer")
    for number, length in enumerate(map(len, fields.lines), 1):
        if length > limits.characters:
            rule = f"{length:,} characters, more than {limits.characters:,}: shorten it"
            raise HTTPException(400, f"line {number} of q has {rule}")
    return (source, target), fields


async def _read_json(request: Request, max_bytes: int) -> dict[str, Any]:
    """The object in a body of at most ``max_bytes`` bytes."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        # browsers send other types across sites without a preflight request
        rule = f"Content-Type must be application/json, but is {media_type[:40]!r}: send JSON"
        raise HTTPException(415, rule)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise HTTPException(413, f"the body has more than {max_bytes:,} bytes: send less text")
    try:
        values = from_json(body)
    except ValueError as error:
        raise HTTPException(
            400, "the body is not valid JSON in UTF-8: send an object with q"
        ) from error
    if not isinstance(values, dict):
        raise HTTPException(400, "the body is not a JSON object: send an object with q")
    return values
