"""A uvicorn server that limits connections, idle time and its log.

asyncio accepts connections until the process has no file descriptors left, and then logs a hundred
errors at once. uvicorn waits without a time limit for the headers of a request, and for clients
that do not read the response.
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

#: largest number of open connections; further connections are closed
MAX_CONNECTIONS = 512
#: connections that asyncio accepts at once
BACKLOG = 128
#: number of `BACKLOG`s that can be open before `Connection.connection_made` closes connections
OPEN_BACKLOGS = 4
#: file descriptors that are not connections, such as the model's files
RESERVED_FILES = 64
#: seconds that clients have to send headers, or to read the rest of a response
TRANSFER_SECONDS = 10


class Connection(H11Protocol):
    """A connection that is closed if no request begins in time.

    Args:
        timeout: the connection is closed after ``timeout`` to 2 ``timeout`` seconds without a new
            request
        max_connections: the largest number of open connections
    """

    def __init__(self, *args: Any, timeout: float, max_connections: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timeout, self.max_connections = timeout, max_connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timer = self.loop.call_later(self.timeout, self._close_idle, None)
        if len(self.connections) > self.max_connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, even if the application has already begun to handle it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # a response is on its way
            self.transport.close()

    def _close_idle(self, request: Any) -> None:
        """Close the connection if no request followed ``request``; otherwise check again later."""
        if self.cycle is request:
            self.transport.abort()
        else:
            self.timer = self.loop.call_later(self.timeout, self._close_idle, self.cycle)


class OneErrorPerSecond(logging.Filter):
    """Shortens operating-system errors, which clients can cause, to one line per second."""

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


def find_connection_limits() -> tuple[int, int]:
    """`MAX_CONNECTIONS` and `BACKLOG`, or smaller numbers if the process may open too few files."""
    needed = MAX_CONNECTIONS + OPEN_BACKLOGS * BACKLOG + RESERVED_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < needed:  # a negative number means no limit
        soft = needed if hard < 0 else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < 0 or soft >= needed:
        return MAX_CONNECTIONS, BACKLOG
    available = max(2 * OPEN_BACKLOGS, soft - RESERVED_FILES)
    backlog = min(BACKLOG, available // (2 * OPEN_BACKLOGS))
    return min(MAX_CONNECTIONS, available - OPEN_BACKLOGS * backlog), backlog


class Server(uvicorn.Server):
    """A server that ends after its last response, or at once at the second signal.

    Args:
        seconds: time limit of a request
    """

    def __init__(self, app: Any, seconds: float) -> None:
        logging.getLogger("asyncio").addFilter(OneErrorPerSecond())
        max_connections, backlog = find_connection_limits()
        timeout = seconds + TRANSFER_SECONDS
        connection: Any = partial(Connection, timeout=timeout, max_connections=max_connections)
        super().__init__(
            uvicorn.Config(
                app,
                http=connection,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                backlog=backlog,
                timeout_graceful_shutdown=int(timeout),
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os.write(2, b"stopped at once: some requests are not answered\n")
            os._exit(128 + sig)
        super().handle_exit(sig, frame)
