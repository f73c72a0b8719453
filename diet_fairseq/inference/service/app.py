"""The service as an ASGI application: routes, limits and responses."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from .batching import Batches, QueueFull
from .headers import HeaderChecks
from .requests import bound_body, read_request

if TYPE_CHECKING:
    from ..translator import Translation

logger = logging.getLogger(__name__)
#: nginx's status of a request whose client has disconnected; only metrics show it
DISCONNECTED = 499
#: key of the ASGI scope: the event loop's time at which the request started
START_TIME = "diet_fairseq.start_time"
#: the page loads nothing, and talks to this service alone
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Translates(Protocol):
    """The part of `Translator` that the service uses."""

    source_lang: str
    target_lang: str

    def candidates(self, lines: Any) -> "list[list[Translation]]": ...


@dataclass(frozen=True)
class Limits:
    """Limits of requests.

    Attributes:
        body: bytes of a request (413)
        characters: characters in a line (400)
        waiting: lines of all requests in the queue (503)
        seconds: for a request, from its connection to its answer (504)
        together: lines in a batch, fewer where they are long (`batching.weight`)
    """

    body: int = 10 * 1000 * 1000
    characters: int = 5000
    waiting: int = 2000
    seconds: float = 60
    together: int = 64


class Metrics:
    """Numbers of requests and lines, durations and batch sizes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name = "diet_fairseq"
        self.requests = Counter(
            f"{name}_requests", "Requests to translate, by status", ["status"], registry=registry
        )
        self.lines = Counter(f"{name}_lines", "Lines translated", registry=registry)
        self.waiting = Gauge(f"{name}_waiting_lines", "Lines in the queue", registry=registry)
        self.seconds = Histogram(
            f"{name}_request_seconds",
            "From a request to its answer",
            registry=registry,
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
        )
        self.batch_lines = Histogram(
            f"{name}_batch_lines",
            "Lines translated at once",
            registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
        )


def application(
    translator: Translates, limits: Limits = Limits(), host_names: Collection[str] = ()
) -> Starlette:
    """The service as an ASGI application.

    Args:
        host_names: the service's host names, beside addresses and ``localhost``
    """
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    observe = metrics.batch_lines.observe

    def translate_lines(lines: Sequence[str]) -> "list[Translation]":
        return [best for best, *_ in translator.candidates(lines)]

    batches = Batches(translate_lines, limits.waiting, limits.together, observe=observe)
    metrics.waiting.set_function(lambda: batches.waiting)
    source, target = translator.source_lang, translator.target_lang

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # A server that shuts down completes its requests before it leaves here.
        running = asyncio.create_task(batches.run())
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    async def translate(request: Request) -> Response:
        fields, is_list = await read_request(
            request, source, target, limits.body, limits.characters, limits.waiting
        )
        translations = await _while_connected(request, batches.translate(fields.lines))
        metrics.lines.inc(len(translations))
        texts = fields.join(translations)
        answer: dict[str, Any] = {"translatedText": texts if is_list else texts[0]}
        if fields.scores:
            scores = fields.scores_by_text(translations)
            answer["scores"] = scores if is_list else scores[0]
        return JSONResponse(answer)

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

    service = Starlette(
        routes=[
            Route("/", home),
            Route("/translate", _within_limits(translate, limits, metrics), methods=["POST"]),
            Route("/languages", languages),
            Route("/health", health),
            Route("/metrics", numbers),
        ],
        exception_handlers={HTTPException: _refuse},
        middleware=[Middleware(HeaderChecks, host_names=host_names)],
        lifespan=lifespan,
    )
    service.router.redirect_slashes = False  # redirects would trust the client's Host
    return service


def _within_limits(
    answer: Callable[[Request], Awaitable[Response]], limits: Limits, metrics: Metrics
) -> Callable[[Request], Awaitable[Response]]:
    """A route with the time limit, failures as a status and one line, and metrics."""

    @wraps(answer)
    async def wrapper(request: Request) -> Response:
        now = asyncio.get_running_loop().time
        start = request.scope.get(START_TIME, now())
        try:
            async with asyncio.timeout_at(start + limits.seconds):
                response = await answer(bound_body(request, limits.body))
        except QueueFull:
            response = _error(503, "too many lines wait to be translated: try again later")
            response.headers["Retry-After"] = "1"
        except TimeoutError:
            response = _error(
                504, f"there is no translation after {limits.seconds:g} seconds: send less text"
            )
        except ClientDisconnect:
            response = Response(status_code=DISCONNECTED)
        except HTTPException as error:
            response = await _refuse(request, error)
        except Exception:
            logger.exception("a request failed")
            response = _error(500, "this could not be translated: see the service's log")
        metrics.requests.labels(str(response.status_code)).inc()
        metrics.seconds.observe(now() - start)
        return response

    return wrapper


async def _while_connected(
    request: Request, work: "Awaitable[list[Translation]]"
) -> "list[Translation]":
    """The result of ``work``, which is cancelled if the client disconnects."""
    working = asyncio.ensure_future(work)
    # The body was read to its end: the next message is that the client has disconnected.
    disconnected = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({working, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        disconnected.cancel()


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status)


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _error(error.status_code, error.detail)
    response.headers.update(error.headers or {})
    return response
