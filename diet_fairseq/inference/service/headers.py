"""Middleware that checks the headers of requests, and adds those of responses."""

import re
from collections.abc import Collection
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]*)?")


class HeaderChecks:
    """ASGI middleware that refuses ambiguous requests and those to other hosts.

    Another site may resolve its name to this service (DNS rebinding), and its pages then read the
    responses. The Host of such requests is that name, so only addresses, ``localhost`` and
    ``host_names`` are served.
    """

    def __init__(self, app: ASGIApp, host_names: Collection[str] = ()) -> None:
        self.app = app
        self.host_names = {"localhost", *(name.lower().rstrip(".") for name in host_names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
            await send(message)

        app = self.app
        if scope["type"] == "http" and (fault := self._fault(Headers(scope=scope))):
            app = JSONResponse({"error": fault}, 400, {"Connection": "close"})
        await app(scope, receive, send_with_headers)

    def _fault(self, headers: Headers) -> str | None:
        for host in headers.getlist("host"):
            if not self._is_served(host):
                return (
                    f"Host {host[:80]!r} is not served: use an address, or start the service with "
                    "--host-names"
                )
        if "content-length" in headers and "transfer-encoding" in headers:
            return "Content-Length and Transfer-Encoding must not come together"
        return None

    def _is_served(self, host: str) -> bool:
        match = HOST.fullmatch(host)
        name = match[1].lower().rstrip(".") if match else ""
        try:
            return name in self.host_names or bool(ip_address(name.strip("[]")))
        except ValueError:
            return False
