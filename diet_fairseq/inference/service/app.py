"""The service's addresses, limits and answers."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from importlib.resources import files
from typing import Any, Protocol

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from . import asked
from .batching import Batches, Full
from .metrics import Metrics

logger = logging.getLogger(__name__)
#: nginx's status of a request whose client has left; nobody sees it but who reads the metrics
LEFT = 499
#: the page is all that it needs, and talks to this service alone
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Translates(Protocol):
    """What the service needs of a `Translator`."""

    source_lang: str
    target_lang: str

    def translate(self, text: Any) -> Any: ...


@dataclass(frozen=True)
class Limits:
    """What a client may ask for, and how long it is waited for.

    Attributes:
        body: bytes of a request (413)
        characters: in a line (400)
        waiting: lines that may wait, of all requests (503)
        seconds: for a request, from its first byte to its answer (504)
        together: lines that are translated at once, fewer where they are long (`batching.weight`)
    """

    body: int = 10 * 1000 * 1000
    characters: int = 5000
    waiting: int = 2000
    seconds: float = 60
    together: int = 64


def application(translator: Translates, limits: Limits = Limits()) -> Starlette:
    """The service as an ASGI application, for any server of such."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    batches = Batches(
        translator.translate,
        limits.waiting,
        limits.together,
        observe=metrics.batch_lines.observe,
    )
    metrics.waiting.set_function(lambda: batches.waiting)
    source, target = translator.source_lang, translator.target_lang

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # A server that shuts down lets requests end before it leaves here.
        running = asyncio.create_task(batches.run())
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    async def translate(request: Request) -> Response:
        wanted = await asked.read(
            request, source, target, limits.body, limits.characters, limits.waiting
        )
        lines = wanted.lines
        found = await _unless_left(request, batches.translated(lines))
        metrics.lines.inc(len(lines))
        return JSONResponse({"translatedText": wanted.answered(found)})

    async def languages(_: Request) -> Response:
        return JSONResponse(
            [
                {"code": source, "name": source, "targets": [target]},
                {"code": target, "name": target, "targets": []},
            ]
        )

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "source": source, "target": target})

    async def numbers(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    page = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    page = page.replace("{{source}}", source).replace("{{target}}", target)

    async def home(_: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})

    return Starlette(
        routes=[
            Route("/", home),
            Route("/translate", _guarded(translate, limits, metrics), methods=["POST"]),
            Route("/languages", languages),
            Route("/health", health),
            Route("/metrics", numbers),
        ],
        exception_handlers={HTTPException: _refused},
        lifespan=lifespan,
    )


def _guarded(
    answer: Callable[[Request], Awaitable[Response]], limits: Limits, metrics: Metrics
) -> Callable[[Request], Awaitable[Response]]:
    """The answer within its time, every failure with a status and one line, all of it counted."""

    @wraps(answer)
    async def wrapper(request: Request) -> Response:
        start = time.monotonic()
        try:
            async with asyncio.timeout(limits.seconds):
                response = await answer(asked.limited(request, limits.body))
        except Full:
            response = _error(503, "too many lines wait to be translated: try again later")
            response.headers["Retry-After"] = "1"
        except TimeoutError:
            response = _error(
                504, f"there is no translation after {limits.seconds:g} seconds: send less text"
            )
        except ClientDisconnect:
            response = Response(status_code=LEFT)
        except HTTPException as error:
            response = await _refused(request, error)
        except Exception:
            logger.exception("a request failed")
            response = _error(500, "this could not be translated: see the service's log")
        metrics.requests.labels(str(response.status_code)).inc()
        metrics.seconds.observe(time.monotonic() - start)
        return response

    return wrapper


async def _unless_left(request: Request, work: Awaitable[list[str]]) -> list[str]:
    """What the work gives; it is cancelled if the client leaves."""
    working = asyncio.ensure_future(work)
    # The body was read to its end: the next that comes is that nobody is there any more.
    left = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({working, left}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        left.cancel()


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _error(error.status_code, error.detail)
    response.headers.update(error.headers or {})
    return response
