"""Requests to translate: LibreTranslate's fields, as JSON."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ...files import describe_validation_error

if TYPE_CHECKING:
    from ..translator import Translation


@dataclass(frozen=True)
class Limits:
    """Limits of requests."""

    body: int = 10 * 1000 * 1000  # bytes of a request (413)
    characters: int = 5000  # in a line (400)
    waiting: int = 2000  # lines of all requests in the queue (503)
    seconds: float = 60  # from the headers of a request to its answer (504)
    together: int = 64  # lines in a batch, fewer where they are long (`batching.weight`)


class TranslationRequest(BaseModel, strict=True):
    """The fields of a request; unknown ones are ignored."""

    q: Annotated[str, Field(min_length=1)]  # one line or several
    source: str | None = None  # None: the model's
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
    request: Request, source: str, target: str, limits: Limits
) -> TranslationRequest:
    """The fields of a request, checked against the model's languages and the limits.

    Raises:
        HTTPException: a field is not valid, or the body is too large
    """
    values = await _read_json(request, limits.body)
    try:
        fields = TranslationRequest.model_validate(values)
    except ValidationError as error:
        raise HTTPException(400, describe_validation_error(error)) from error
    for name, languages in (("source", (None, source, "auto")), ("target", (None, target))):
        if (language := getattr(fields, name)) not in languages:
            rule = f"this model translates {source} to {target}"
            raise HTTPException(400, f"{name} {language[:40]!r} is not supported: {rule}")
    if (count := len(fields.lines)) > limits.waiting:
        raise HTTPException(400, f"q has {count:,} lines, more than {limits.waiting:,}: send fewer")
    for number, length in enumerate(map(len, fields.lines), 1):
        if length > (most := limits.characters):
            rule = f"{length:,} characters, more than {most:,}: shorten it"
            raise HTTPException(400, f"line {number} of q has {rule}")
    return fields


async def _read_json(request: Request, most: int) -> dict[str, Any]:
    """The object in a body of at most ``most`` bytes."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # browsers send other types across sites without a preflight request
        rule = f"Content-Type must be application/json, but is {kind[:40]!r}: send JSON"
        raise HTTPException(415, rule)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413, f"the body has more than {most:,} bytes: send less text")
    try:
        values = from_json(body)
    except ValueError as error:
        raise HTTPException(
            400, "the body is not valid JSON in UTF-8: send an object with q"
        ) from error
    if not isinstance(values, dict):
        raise HTTPException(400, "the body is not a JSON object: send an object with q")
    return values
