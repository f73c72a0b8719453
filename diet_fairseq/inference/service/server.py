"""uvicorn with limits of the number of connections, their idle time and their duration.

asyncio accepts connections until the process has no descriptor left, and uvicorn waits for the
first request of a connection without a limit.
"""

import asyncio
import logging
import os
import resource
import socket
from dataclasses import dataclass
from functools import cache, partial
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...errors import UserError

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


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections."""

    connections: int  # number of open ones
    idle: float  # seconds from the connection or the last response to the end of headers
    seconds: float  # from there to the response


def connection_limit(connections: int | None) -> int:
    """The limit of open connections (default: 512, or as many as the descriptors allow).

    Raises:
        UserError: the process's limit of descriptors is too low
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return connections or 512
    least = (connections or 1) + RESERVE
    if descriptors < least:
        raise UserError(
            f"--max-connections {connections or 1:,} needs {least:,} descriptors, but this process "
            f"may have {descriptors:,}: raise `ulimit -n`, or allow fewer connections"
        )
    return connections or min(512, descriptors - RESERVE)


class Connection(H11Protocol):
    """A connection with limits of time, which is idle until a request's headers have arrived.

    If there are too many connections, the one that has been idle longest is closed.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits
        self.start_time = self.loop.time()  # of the request, or of the idle time
        self.timed_cycle: Any = None  # the request whose time the timer limits
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit_time()
        if len(self.connections) > self.limits.connections:
            _warn_of_many_connections()
            connections: set[Any] = self.connections
            idle = (connection for connection in connections if connection.is_idle)
            longest_idle = min(idle, key=lambda connection: connection.start_time)
            self.connections.discard(longest_idle)  # uvicorn does so later, after further arrivals
            longest_idle.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_time()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # may start the next request of a pipeline
        self._limit_time()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        super().connection_lost(exc)

    def _limit_time(self) -> None:
        """Restart the timer, which closes the connection, if a request or idle time has begun."""
        cycle = None if self.is_idle else self.cycle
        if self.timer is not None:
            if cycle is self.timed_cycle:
                return
            self.timer.cancel()
        self.start_time, self.timed_cycle = self.loop.time(), cycle
        seconds = self.limits.idle if cycle is None else self.limits.seconds + READING
        self.timer = self.loop.call_later(seconds, self.transport.abort)


@cache  # or the log of a busy service would grow without end
def _warn_of_many_connections() -> None:
    logger.warning("the limit of connections is reached: idle ones are closed for new ones")


class Server(uvicorn.Server):
    """A server that ends after its last response, or at the second signal."""

    def __init__(self, app: Any, limits: ConnectionLimits) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(Connection, limits=limits),  # type: ignore[arg-type]
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                backlog=AT_ONCE,
                timeout_keep_alive=int(limits.idle) + 1,  # `Connection` is earlier
                timeout_graceful_shutdown=int(limits.seconds + 1) + READING,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(BACKLOG)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os.write(2, b"stopped at once: some requests are not answered\n")
            os._exit(128 + sig)
        super().handle_exit(sig, frame)
