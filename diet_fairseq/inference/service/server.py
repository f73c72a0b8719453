"""uvicorn with limits: on connections, on how long they may be idle, and on how long they last.

asyncio accepts connections until the process has no descriptor left, and uvicorn waits for the
first request of a connection without a limit.
"""

import asyncio
import logging
import os
import resource
import socket
import time
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...errors import UserError
from .app import BEGAN

logger = logging.getLogger(__name__)

#: seconds in which clients may read the rest of their answers
READING = 5
#: connections that asyncio accepts at once, before it calls `Connection.connection_made`
AT_ONCE = 16
#: connections that may wait to be accepted
BACKLOG = 128
#: descriptors beside connections: the model's, those of asyncio, and connections that were just
#: accepted or are being closed
RESERVE = 64 + 4 * AT_ONCE
#: seconds between two log lines about too many connections
QUIET = 60


@dataclass
class ConnectionLimits:
    """Limits of connections.

    Attributes:
        connections: that are open
        idle: seconds from the connection or the last answer to the end of a request's headers
        seconds: for a request, from the connection or the request's first byte to its answer
        logged: time of the last log line
        unread: connections that were closed during the shutdown before their answer was read
    """

    connections: int
    idle: float
    seconds: float
    logged: float = field(default=-QUIET, compare=False)
    unread: int = field(default=0, compare=False)


def connection_limit(connections: int | None) -> int:
    """How many connections may be open: as many as are given, or 512 at most.

    Raises:
        UserError: the process may not have as many descriptors
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = descriptors - RESERVE
    if descriptors == resource.RLIM_INFINITY:
        return connections or 512
    if most < 1 or (connections or 1) > most:
        raise UserError(
            f"--max-connections {connections or 1:,} needs {(connections or 1) + RESERVE:,} "
            f"descriptors, but this process may have {descriptors:,}: raise `ulimit -n`, or allow "
            "fewer connections"
        )
    return connections or min(512, most)


class Connection(H11Protocol):
    """A connection that is closed when its time is over.

    While it waits for a request it is idle. If there are too many connections, the one that has
    been idle longest is closed.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits
        self.began = self.loop.time()
        self.has_begun = True  # whether `began` is the time of the next request already
        self.timer: asyncio.TimerHandle | None = None
        app: Any = self.app

        async def app_with_time(scope: Any, receive: Any, send: Any) -> None:
            await app(scope | {BEGAN: self.began}, receive, send)

        self.app = app_with_time

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(self.limits.idle)
        if len(self.connections) > self.limits.connections:
            idle = [one for one in self.connections if isinstance(one, Connection) and one.is_idle]
            closed = min(idle, key=lambda one: one.began)
            self.connections.discard(closed)  # it is lost later, and others may come before
            closed.transport.abort()
            now = time.monotonic()
            if now - self.limits.logged >= QUIET:
                self.limits.logged = now
                logger.warning(
                    "%s connections are open, as many as may be: idle ones are closed for new ones",
                    f"{self.limits.connections:,}",
                )

    def data_received(self, data: bytes) -> None:
        if not self.has_begun:
            self.began, self.has_begun = self.loop.time(), True
            self._wait(self.limits.idle)
        super().data_received(data)
        self._wait_for_answer()

    def on_response_complete(self) -> None:
        self.began, self.has_begun = self.loop.time(), False
        self._wait(self.limits.idle)
        super().on_response_complete()  # may begin the next request, which has come already
        self._wait_for_answer()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        super().connection_lost(exc)

    def _wait_for_answer(self) -> None:
        if not self.is_idle:
            self._wait(self.limits.seconds + READING)

    def _wait(self, seconds: float) -> None:
        """Close the connection so many seconds after it or its request began."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.loop.call_at(self.began + seconds, self._close)

    def _close(self) -> None:
        self.limits.unread += not self.is_idle
        self.transport.abort()


class Server(uvicorn.Server):
    """Ends when it has answered all requests, or at the second signal."""

    limits: ConnectionLimits

    @classmethod
    def of(cls, app: Any, limits: ConnectionLimits) -> "Server":
        """A server of an ASGI application."""
        protocol: Any = partial(Connection, limits=limits)
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            backlog=AT_ONCE,
            timeout_keep_alive=max(1, int(limits.idle)),
            timeout_graceful_shutdown=int(limits.seconds + 1) + READING,
        )
        server = cls(config)
        server.limits = limits
        return server

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.limits.unread = 0
        await super().shutdown(sockets)
        self.limits.unread += len(self.server_state.connections)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os.write(2, b"stopped at once: some requests are not answered\n")
            os._exit(128 + sig)
        super().handle_exit(sig, frame)
