"""What urllib lacks: a limit for servers that send too slowly."""

import io
import time
import urllib.request
from contextlib import suppress
from http.client import HTTPResponse
from typing import Any

#: so many bytes must come in so many seconds, 10 kB a second, until all have come
LEAST, SECONDS = 600_000, 60
#: bytes read of an answer that is not needed
SOME = 1 << 16


def begin(request: urllib.request.Request) -> Any:
    """Ask for it by http or https, alone or by way of redirections; the answer, to be read.

    Raises what urllib does, and `TimeoutError` where too little arrives: also of the answer's first
    lines, and later in reading it.
    """
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        _Http,
        _Https,
    ):
        opener.add_handler(handler())
    return opener.open(request, timeout=SECONDS)


class _Steady(io.RawIOBase):
    """What a socket receives."""

    def __init__(self, sock: Any, file: io.BufferedReader) -> None:
        self._sock, self._file = sock, file
        self._got, self._end = 0, time.monotonic() + SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            now = time.monotonic()
            if now >= self._end:
                if self._got < LEAST:
                    raise TimeoutError(f"{self._got:,} bytes in {SECONDS} seconds are too few")
                self._got, self._end = 0, now + SECONDS
            self._sock.settimeout(self._end - now)
            with suppress(TimeoutError):
                got = self._sock.recv_into(buffer)
                self._got += got
                return got

    def close(self) -> None:
        self._file.close()  # which keeps the socket open
        super().close()


class _Answer(HTTPResponse):
    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Steady(sock, self.fp))

    def read(self, amt: int | None = None) -> bytes:
        """urllib reads all that comes with a redirection, however long, for nothing."""
        return super().read(SOME if amt is None else amt)


class _Steadily:
    """Makes a handler of urllib return such answers."""

    def do_open(self, http_class: Any, request: Any, **more: Any) -> Any:
        def connection(*args: Any, **kwargs: Any) -> Any:
            made = http_class(*args, **kwargs)
            made.response_class = _Answer
            return made

        return super().do_open(connection, request, **more)  # type: ignore[misc]


class _Http(_Steadily, urllib.request.HTTPHandler): ...  # type: ignore[misc]


class _Https(_Steadily, urllib.request.HTTPSHandler): ...  # type: ignore[misc]
