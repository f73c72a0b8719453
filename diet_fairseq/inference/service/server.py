"""uvicorn with limits of idle connections.

asyncio accepts connections until the process has no descriptor left, and uvicorn waits for the
headers of a request, and for clients to read, without a limit.
"""

import asyncio
import os
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

#: largest number of open connections; further ones are closed
CONNECTIONS = 512
#: connections that asyncio accepts at once, before it calls `Connection.connection_made`
BACKLOG = 128
#: seconds that clients have to send headers, or to read the rest of a response
TRANSFER = 10


class Connection(H11Protocol):
    """A connection that is closed if no request begins for ``seconds`` to twice as many."""

    def __init__(self, *args: Any, seconds: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seconds = seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timer = self.loop.call_later(self.seconds, self._close_idle, None)
        if len(self.connections) > CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()
        super().connection_lost(exc)

    def _close_idle(self, request: Any) -> None:
        """Close the connection if ``request`` still is its last, or test it again later."""
        if self.cycle is request:
            self.transport.abort()
        else:
            self.timer = self.loop.call_later(self.seconds, self._close_idle, self.cycle)


class Server(uvicorn.Server):
    """A server that ends after its last response, or at the second signal.

    Args:
        app: answers each request within ``seconds``
    """

    def __init__(self, app: Any, seconds: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(Connection, seconds=seconds + TRANSFER),  # type: ignore[arg-type]
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=int(seconds) + TRANSFER,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os.write(2, b"stopped at once: some requests are not answered\n")
            os._exit(128 + sig)
        super().handle_exit(sig, frame)
