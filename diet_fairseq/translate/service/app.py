"""The service as an ASGI application: routes, limits and responses."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ..translation import join_translations
from .batching import Batches
from .detection import LanguageDetector, has_detection_library
from .requests import Limits, TextRequest, read_fields, read_request, split_lines

if TYPE_CHECKING:
    from ..translator import Translator

logger = logging.getLogger(__name__)
#: host names that are always allowed
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
#: the page loads nothing, and talks only to this service
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: LibreTranslate's default: milliseconds from the last key to the translation in a web page
FRONTEND_TIMEOUT = 500


def application(
    translator: "Translator", limits: Limits | None = None, host_names: Collection[str] = ()
) -> Starlette:
    """The service as an ASGI application.

    Args:
        limits: the limits of requests (default: the values of `Limits`)
        host_names: allowed host names in addition to `LOCAL_HOSTS`; ``*`` allows all
    """
    source, target = translator.source_lang, translator.target_lang
    targets, limits = translator.targets, limits or Limits()
    detector = LanguageDetector(targets, source) if has_detection_library() else None
    batches = Batches(
        lambda key, sentences: translator.candidates(
            sentences, split_sentences=False, warn=False, **key._asdict()
        ),
        limits.batch,
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # the server leaves this context after its last response
        task = asyncio.create_task(batches.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def answer_in_time(
        answer: Callable[[Request], Awaitable[Any]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                async with asyncio.timeout(limits.seconds):
                    return JSONResponse(await answer(request))
            except HTTPException:
                raise
            except TimeoutError as error:
                text = f"the translation took more than {limits.seconds:g} seconds: send less text"
                raise HTTPException(504, text) from error
            except ClientDisconnect:
                return Response()  # the client has disconnected
            except Exception as error:
                logger.exception("a request failed")
                text = "the translation failed: see the service's log"
                raise HTTPException(500, text) from error

        return respond

    @answer_in_time
    async def translate(request: Request) -> dict[str, Any]:
        key, fields, detected = await read_request(request, translator, limits, detector)
        lines = await asyncio.to_thread(split_lines, translator, key, fields)
        sentences = [sentence for line in lines for sentence in line]
        if (count := len(sentences)) > limits.waiting:
            rule = f"{count:,} sentences, more than {limits.waiting:,}: send fewer"
            raise HTTPException(400, f"q has {rule}")
        if batches.waiting_sentences + count > limits.waiting:
            text = "the request queue is full: try again later"
            raise HTTPException(503, text, {"Retry-After": "1"})
        translations = iter(await batches.submit(key, sentences))
        candidates = [
            join_translations(list(islice(translations, len(line))), key.nbest) for line in lines
        ]
        if omissions := translator.find_omissions(key.source_lang, key.target_lang):
            omissions.add(line[0] for line in candidates)
            omissions.log()
        answer = fields.answer(candidates)
        if detected:
            is_list = isinstance(fields.q, list)
            answer["detectedLanguage"] = [detected] * len(fields.q) if is_list else detected
        return answer

    @answer_in_time
    async def detect(request: Request) -> list[dict[str, Any]]:
        if detector is None:
            rule = "install diet_fairseq[detect]"
            raise HTTPException(404, f"detection needs the library py3langid: {rule}")
        fields = await read_fields(request, TextRequest, limits)
        fields.check(limits)
        return await asyncio.to_thread(detector.detect, "\n".join(fields.lines))

    async def settings(_: Request) -> Response:
        return JSONResponse(
            {
                "apiKeys": False,
                "charLimit": limits.characters,
                "filesTranslation": False,
                "frontendTimeout": FRONTEND_TIMEOUT,
                "keyRequired": False,
                "language": {
                    "source": {"code": source, "name": source},
                    "target": {"code": target, "name": target},
                },
                "suggestions": False,
                "supportedFilesFormat": [],
            }
        )

    async def health(_: Request) -> Response:
        count = batches.waiting_sentences
        fields = {"status": "ok", "source": source, "target": target, "waiting": count}
        return JSONResponse(fields)

    async def languages(_: Request) -> Response:
        names = dict.fromkeys([*targets, *(name for group in targets.values() for name in group)])
        return JSONResponse(
            [{"code": name, "name": name, "targets": targets.get(name, [])} for name in names]
        )

    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    page = page.replace("{{source}}", source).replace("{{target}}", target)
    page = page.replace("{{splits}}", json.dumps(translator.splits(source, target)))
    page = page.replace("{{targets}}", json.dumps(targets))  # codes without characters of HTML

    async def home(_: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})

    async def refuse(_: Request, error: Any) -> Response:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    service = Starlette(
        routes=[
            Route("/", home),
            Route("/translate", translate, methods=["POST"]),
            Route("/detect", detect, methods=["POST"]),
            Route("/frontend/settings", settings),
            Route("/health", health),
            Route("/languages", languages),
        ],
        exception_handlers={HTTPException: refuse},
        # Another site can resolve its name to this service; its pages could then read responses.
        middleware=[
            Middleware(
                TrustedHostMiddleware, allowed_hosts=[*LOCAL_HOSTS, *host_names], www_redirect=False
            )
        ],
        lifespan=lifespan,
    )
    service.router.redirect_slashes = False  # redirects would trust the client's Host
    return service
