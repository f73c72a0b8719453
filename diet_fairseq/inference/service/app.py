"""The service as an ASGI application: routes, limits and responses."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

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

from .batching import Batches
from .headers import HeaderChecks
from .requests import DEFAULT_LIMITS, Limits, read_request

if TYPE_CHECKING:
    from ..translator import Translation, Translator

logger = logging.getLogger(__name__)
#: nginx's status of a request whose client has disconnected; only metrics show it
DISCONNECTED = 499
#: the page loads nothing, and talks to this service alone
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Metrics:
    """Numbers of requests and lines, durations and batch sizes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        options: dict[str, Any] = {"namespace": "diet_fairseq", "registry": registry}
        status = ["status"]
        self.requests = Counter("requests", "Requests to translate, by status", status, **options)
        self.lines = Counter("lines", "Lines translated", **options)
        self.waiting = Gauge("waiting_lines", "Lines in the queue", **options)
        seconds = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
        self.seconds = Histogram(
            "request_seconds", "From a request to its answer", buckets=seconds, **options
        )
        sizes = (1, 2, 4, 8, 16, 32, 64, 128)
        self.batch_lines = Histogram(
            "batch_lines", "Lines translated at once", buckets=sizes, **options
        )


def application(
    translator: "Translator", limits: Limits = DEFAULT_LIMITS, host_names: Collection[str] = ()
) -> Starlette:
    """The service as an ASGI application.

    Args:
        host_names: the service's host names, beside addresses and ``localhost``
    """
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    source, target = translator.source_lang, translator.target_lang

    def translate_lines(lines: Sequence[str]) -> "list[Translation]":
        return [best for best, *_ in translator.candidates(lines)]

    batches = Batches(translate_lines, limits.together, metrics.batch_lines.observe)
    metrics.waiting.set_function(lambda: batches.waiting)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # The server leaves here after its last response.
        running = asyncio.create_task(batches.run())
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    async def answer(request: Request) -> Response:
        fields = await read_request(request, source, target, limits)
        lines = fields.lines
        if batches.waiting + len(lines) > limits.waiting:
            text = "too many lines wait to be translated: try again later"
            raise HTTPException(503, text, {"Retry-After": "1"})
        translations = await _while_connected(request, batches.submit(lines))
        metrics.lines.inc(len(translations))
        return JSONResponse(fields.answer(translations))

    async def translate(request: Request) -> Response:
        start = monotonic()
        try:
            async with asyncio.timeout(limits.seconds):
                response = await answer(request)
        except HTTPException as error:
            response = await _refuse(request, error)
        except TimeoutError:
            text = f"there is no translation after {limits.seconds:g} seconds: send less text"
            response = await _refuse(request, HTTPException(504, text))
        except ClientDisconnect:
            response = Response(status_code=DISCONNECTED)
        except Exception:
            logger.exception("a request failed")
            text = "this could not be translated: see the service's log"
            response = await _refuse(request, HTTPException(500, text))
        metrics.requests.labels(str(response.status_code)).inc()
        metrics.seconds.observe(monotonic() - start)
        return response

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

    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    page = page.replace("{{source}}", source).replace("{{target}}", target)

    async def home(_: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})

    service = Starlette(
        routes=[
            Route("/", home),
            Route("/translate", translate, methods=["POST"]),
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


async def _while_connected(request: Request, answer: asyncio.Future[Any]) -> "list[Translation]":
    """The answer, which is cancelled if the client disconnects."""
    # The body was read to its end: the next message is that the client has disconnected.
    disconnected: asyncio.Future[Any] = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({answer, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        answer.cancel()
        disconnected.cancel()


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
