"""Requests to translate: LibreTranslate's fields, as JSON or as a form."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from ...input_files import broken_rule

if TYPE_CHECKING:
    from ..translator import Translation

#: limit of a form's fields beside its texts
OTHER_FIELDS = 100
#: limit of a form's files, which are ignored
FILES = 8
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def _texts(q: Any) -> Any:
    if q in ("", []):
        raise ValueError("must be the text to translate")
    return [q] if isinstance(q, str) else q


class TranslationRequest(BaseModel):
    """The fields of a request; unknown ones are ignored.

    Attributes:
        q: texts, each of one line or several
        source, target: languages; None: the model's
        scores: whether the answer has a score for each line
    """

    model_config = ConfigDict(strict=True)

    q: Annotated[list[str], BeforeValidator(_texts)]
    source: str | None = None
    target: str | None = None
    format: Literal["text"] = "text"
    scores: Annotated[bool, Field(strict=False)] = False  # forms have strings

    @property
    def lines(self) -> list[str]:
        """All lines of all texts."""
        return [line for text in self.q for line in text.split("\n")]

    def join(self, translations: "list[Translation]") -> list[str]:
        """Join the lines' translations to texts."""
        return ["\n".join(line.text for line in lines) for lines in self._by_text(translations)]

    def scores_by_text(self, translations: "list[Translation]") -> list[list[float]]:
        """The scores of each text's lines."""
        return [[round(line.score, 6) for line in lines] for lines in self._by_text(translations)]

    def _by_text(self, translations: "list[Translation]") -> "list[list[Translation]]":
        lines = iter(translations)
        return [list(islice(lines, text.count("\n") + 1)) for text in self.q]


def bound_body(request: Request, most: int) -> Request:
    """The request with a limit of bytes, beyond which reading its body raises 413."""
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
        body: limit of bytes in the request, and so in a field
        longest: limit of characters in a line
        most: limit of lines

    Raises:
        HTTPException: a field is not valid
    """
    values = await _values(request, body, most + OTHER_FIELDS)
    try:
        fields = TranslationRequest.model_validate(values)
    except ValidationError as error:
        raise HTTPException(400, broken_rule(error)) from error
    for name, languages in (("source", (None, source, "auto")), ("target", (None, target))):
        language = getattr(fields, name)
        if language not in languages:
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
    """The request's fields; a form may have ``most``, of ``longest`` bytes each."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in FORMS:
        async with request.form(max_part_size=longest, max_fields=most, max_files=FILES) as form:
            texts = form.getlist("q")
            return {**form, **({"q": texts[0] if len(texts) == 1 else texts} if texts else {})}
    if kind != "application/json":
        # browsers send other types across sites without a preflight request
        raise HTTPException(415, "send JSON, with Content-Type application/json, or a form")
    try:
        values = from_json(await request.body())
    except ValueError as error:
        raise HTTPException(400, "the body is no JSON (in UTF-8)") from error
    if not isinstance(values, dict):
        raise HTTPException(400, "the body is no JSON object")
    return values
