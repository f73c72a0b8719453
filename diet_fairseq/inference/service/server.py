"""uvicorn with limits of the number of connections, their idle time and their duration.

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
from .app import START_TIME

logger = logging.getLogger(__name__)

#: seconds that clients have to read the rest of a response
READING = 5
#: connections that asyncio accepts at once, before it calls `Connection.connection_made`
AT_ONCE = 16
#: connections that may wait to be accepted
BACKLOG = 128
#: descriptors beside open connections: the model's, asyncio's, and those of connections that are
#: being accepted or closed
RESERVE = 64 + 4 * AT_ONCE
#: seconds between two log lines about too many connections
QUIET = 60


@dataclass
class ConnectionLimits:
    """Limits of connections.

    Attributes:
        connections: number of open connections
        idle: seconds from the connection or the last response to the end of a request's headers
        seconds: seconds from the connection or the request's first byte to the response
        logged: time of the last log line
        unread: number of connections that the shutdown closed before their response was read
    """

    connections: int
    idle: float
    seconds: float
    logged: float = field(default=-QUIET, compare=False)
    unread: int = field(default=0, compare=False)


def connection_limit(connections: int | None) -> int:
    """The limit of open connections (default: 512, or as many as the descriptors allow).

    Raises:
        UserError: the process's limit of descriptors is too low
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
    """A connection with a limit of time.

    It is idle while it waits for a request. If there are too many connections, the one that has
    been idle longest is closed.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits
        self.start_time = self.loop.time()
        self.is_started = True  # whether `start_time` is the next request's
        self.timer: asyncio.TimerHandle | None = None
        app: Any = self.app

        async def app_with_time(scope: Any, receive: Any, send: Any) -> None:
            await app(scope | {START_TIME: self.start_time}, receive, send)

        self.app = app_with_time

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(self.limits.idle)
        if len(self.connections) > self.limits.connections:
            idle = [
                other
                for other in self.connections
                if isinstance(other, Connection) and other.is_idle
            ]
            longest_idle = min(idle, key=lambda other: other.start_time)
            self.connections.discard(longest_idle)  # uvicorn does so later, after further arrivals
            longest_idle.transport.abort()
            now = time.monotonic()
            if now - self.limits.logged >= QUIET:
                self.limits.logged = now
                logger.warning(
                    "%s connections are open, as many as may be: idle ones are closed for new ones",
                    f"{self.limits.connections:,}",
                )

    def data_received(self, data: bytes) -> None:
        if not self.is_started:
            self.start_time, self.is_started = self.loop.time(), True
            self._wait(self.limits.idle)
        super().data_received(data)
        self._wait_for_answer()

    def on_response_complete(self) -> None:
        self.start_time, self.is_started = self.loop.time(), False
        self._wait(self.limits.idle)
        super().on_response_complete()  # may start the next request of a pipeline
        self._wait_for_answer()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        super().connection_lost(exc)

    def _wait_for_answer(self) -> None:
        if not self.is_idle:
            self._wait(self.limits.seconds + READING)

    def _wait(self, seconds: float) -> None:
        """Close the connection so many seconds after its start or its request's."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.loop.call_at(self.start_time + seconds, self._close)

    def _close(self) -> None:
        self.limits.unread += not self.is_idle
        self.transport.abort()


class Server(uvicorn.Server):
    """A server that ends after its last response, or at the second signal."""

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
