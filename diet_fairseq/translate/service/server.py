"""uvicorn with limits of connections and of its log.

asyncio accepts connections until the process has no descriptor left, which it logs a hundred times
at once, and uvicorn waits for the headers of a request, and for clients to read, without a limit.
"""

import asyncio
import logging
import os
import resource
import time
from functools import partial
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

#: largest number of open connections; further ones are closed
CONNECTIONS = 512
#: connections that asyncio accepts at once
BACKLOG = 128
#: batches of `BACKLOG` that are open at once before `Connection.connection_made` can close them
BATCHES = 4
#: descriptors of the model and of everything else
RESERVED = 64
#: seconds that clients have to send headers, or to read the rest of a response
TRANSFER = 10


class Connection(H11Protocol):
    """A connection that is closed if no request begins for ``seconds`` to twice as many.

    Args:
        most: the largest number of open connections
    """

    def __init__(self, *args: Any, seconds: float, most: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seconds, self.most = seconds, most

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timer = self.loop.call_later(self.seconds, self._close_idle, None)
        if len(self.connections) > self.most:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, in the place of the application if that has it already."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # a response is on its way
            self.transport.close()

    def _close_idle(self, request: Any) -> None:
        """Close the connection if ``request`` still is its last, or test it again later."""
        if self.cycle is request:
            self.transport.abort()
        else:
            self.timer = self.loop.call_later(self.seconds, self._close_idle, self.cycle)


class OneLineASecond(logging.Filter):
    """Shortens the system's errors, which clients can cause, to a line at most every second."""

    next_line = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, OSError):
            return True
        now = time.monotonic()
        if now < self.next_line:
            return False
        self.next_line = now + 1
        record.msg = f"{record.getMessage().splitlines()[0]}: {error.strerror}"
        record.args, record.exc_info = (), None
        return True


def allowed_connections() -> tuple[int, int]:
    """`CONNECTIONS` and `BACKLOG`, or fewer where the process may open only few files."""
    needed = CONNECTIONS + BATCHES * BACKLOG + RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < needed:  # a negative limit is none
        soft = needed if hard < 0 else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < 0 or soft >= needed:
        return CONNECTIONS, BACKLOG
    left = max(2 * BATCHES, soft - RESERVED)
    backlog = min(BACKLOG, left // (2 * BATCHES))
    return min(CONNECTIONS, left - BATCHES * backlog), backlog


class Server(uvicorn.Server):
    """A server that ends after its last response, or at the second signal.

    Args:
        app: answers each request within ``seconds``
    """

    def __init__(self, app: Any, seconds: float) -> None:
        logging.getLogger("asyncio").addFilter(OneLineASecond())
        most, backlog = allowed_connections()
        connection: Any = partial(Connection, seconds=seconds + TRANSFER, most=most)
        super().__init__(
            uvicorn.Config(
                app,
                http=connection,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                backlog=backlog,
                timeout_graceful_shutdown=int(seconds) + TRANSFER,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os.write(2, b"stopped at once: some requests are not answered\n")
            os._exit(128 + sig)
        super().handle_exit(sig, frame)
