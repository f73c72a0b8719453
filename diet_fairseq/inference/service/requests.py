"""What a client asks for: LibreTranslate's request form, as JSON or as a form."""

import json
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

#: fields of a form beside its texts, which are read or passed over
OTHERS = 100


@dataclass(frozen=True)
class Asked:
    """Texts to translate.

    Attributes:
        texts: each of one line or several
        one: whether there was one text, and not a list
    """

    texts: list[str]
    one: bool

    @property
    def lines(self) -> list[str]:
        """All lines of all texts."""
        return [line for text in self.texts for line in text.split("\n")]

    def answered(self, translations: list[str]) -> str | list[str]:
        """The lines' translations as the client gave the texts."""
        lines = iter(translations)
        found = ["\n".join(next(lines) for _ in text.split("\n")) for text in self.texts]
        return found[0] if self.one else found


def limited(request: Request, most: int) -> Request:
    """The request, of whose body no more than so many bytes are read."""
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


async def read(
    request: Request, source: str, target: str, body: int, longest: int, most: int
) -> Asked:
    """What the request asks for.

    :param body: bytes of the request, and so of a field
    :param longest: characters in a line
    :param most: lines
    :raises HTTPException: with the status and one line about what is wrong
    """
    values = await _values(request, body, most + OTHERS)
    q = values.get("q")
    if q is None or q == "" or q == []:
        raise HTTPException(
            400,
            "q is missing: give the text to translate (JSON needs the header content-type: "
            "application/json)",
        )
    texts = [q] if isinstance(q, str) else q
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise HTTPException(400, "q must be text or a list of texts")
    for name, own, others in (("source", source, ("auto",)), ("target", target, ())):
        language = values.get(name, own)
        if language not in (own, *others):
            raise HTTPException(
                400,
                f"{name} {str(language)[:40]!r} is not supported: this model translates {source} "
                f"to {target}",
            )
    if (kind := values.get("format", "text")) != "text":
        raise HTTPException(400, f"format {str(kind)[:40]!r} is not supported: send text")
    asked = Asked(texts, isinstance(q, str))
    lines = asked.lines
    if len(lines) > most:
        raise HTTPException(400, f"q has {len(lines):,} lines, more than {most:,}: send fewer")
    for number, line in enumerate(lines, 1):
        if len(line) > longest:
            raise HTTPException(
                400,
                f"line {number} of q has {len(line):,} characters, more than {longest:,}: shorten "
                "it",
            )
    return asked


async def _values(request: Request, longest: int, most: int) -> dict[str, Any]:
    """The request's fields; a form has no more than ``most``, of ``longest`` bytes at most."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        async with request.form(max_part_size=longest, max_fields=most) as form:
            texts = form.getlist("q")
            return {**form, "q": texts[0] if len(texts) == 1 else texts}
    body = await request.body()
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is no JSON (in UTF-8)") from error
    if not isinstance(values, dict):
        raise HTTPException(400, "the body is no JSON object")
    return values
