"""Requests to translate: LibreTranslate's fields, as JSON or as a form."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from ...input_files import broken_rule

#: fields of a form beside its texts
OTHER_FIELDS = 100
#: files of a form, which are passed over
FILES = 8
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def _texts(q: Any) -> Any:
    if q in ("", []):
        raise ValueError("must be the text to translate")
    return [q] if isinstance(q, str) else q


class TranslationRequest(BaseModel):
    """The fields of a request; others are passed over.

    Attributes:
        q: texts, each of one line or several
        source, target: languages; None: the model's
    """

    model_config = ConfigDict(strict=True)

    q: Annotated[list[str], BeforeValidator(_texts)]
    source: str | None = None
    target: str | None = None
    format: Literal["text"] = "text"

    @property
    def lines(self) -> list[str]:
        """All lines of all texts."""
        return [line for text in self.q for line in text.split("\n")]

    def join(self, translations: list[str]) -> list[str]:
        """The lines' translations, joined to texts as the lines were."""
        lines = iter(translations)
        return ["\n".join(next(lines) for _ in text.split("\n")) for text in self.q]


def bound_body(request: Request, most: int) -> Request:
    """The request, whose body raises 413 beyond so many bytes."""
    too_large = HTTPException(413, f"the body has more than {most:,} bytes: send less text")
    declared = request.headers.get("content-length", "")
    read = 0

    async def receive() -> Message:
        nonlocal read
        if declared.isdecimal() and int(declared) > most:
            raise too_large
        message = await request.receive()
        read += len(message.get("body", b""))
        if read > most:
            raise too_large
        return message

    return Request(request.scope, receive)


async def read_request(
    request: Request, source: str, target: str, body: int, longest: int, most: int
) -> tuple[TranslationRequest, bool]:
    """The request's fields, checked, and whether its ``q`` was a list.

    Args:
        source, target: the model's languages
        body: bytes of the request, and so of a field
        longest: characters in a line
        most: lines

    Raises:
        HTTPException: with the status, and one line about the fault
    """
    values = await _values(request, body, most + OTHER_FIELDS)
    try:
        fields = TranslationRequest.model_validate(values)
    except ValidationError as error:
        raise HTTPException(400, broken_rule(error)) from error
    for name, own, others in (("source", source, ("auto",)), ("target", target, ())):
        language = getattr(fields, name)
        if language not in (None, own, *others):
            raise HTTPException(
                400,
                f"{name} {language[:40]!r} is not supported: this model translates {source} to "
                f"{target}",
            )
    lines = fields.lines
    if len(lines) > most:
        raise HTTPException(400, f"q has {len(lines):,} lines, more than {most:,}: send fewer")
    for number, line in enumerate(lines, 1):
        if len(line) > longest:
            raise HTTPException(
                400,
                f"line {number} of q has {len(line):,} characters, more than {longest:,}: shorten "
                "it",
            )
    return fields, isinstance(values["q"], list)


async def _values(request: Request, longest: int, most: int) -> dict[str, Any]:
    """The request's fields; a form has no more than ``most``, of ``longest`` bytes at most."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in FORMS:
        async with request.form(max_part_size=longest, max_fields=most, max_files=FILES) as form:
            texts = form.getlist("q")
            return {**form, **({"q": texts[0] if len(texts) == 1 else texts} if texts else {})}
    if kind != "application/json":
        # a page of another site may send other types without asking first
        raise HTTPException(415, "send JSON, with Content-Type application/json, or a form")
    try:
        values = from_json(await request.body())
    except ValueError as error:
        raise HTTPException(400, "the body is no JSON (in UTF-8)") from error
    if not isinstance(values, dict):
        raise HTTPException(400, "the body is no JSON object")
    return values
