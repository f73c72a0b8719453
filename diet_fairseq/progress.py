"""A sign of life at least every 20 seconds: that a command is working, and how far it is."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EVERY = 20.0  # seconds


class _Ear(logging.Handler):
    """Remembers when something was last logged."""

    def __init__(self) -> None:
        super().__init__()
        self.last = time.monotonic()

    def emit(self, record: Any = None) -> None:
        self.last = time.monotonic()


#: one heartbeat at a time: that of a validation waits for the training's around it
_turn = threading.Lock()


@contextmanager
def heartbeat(say: Callable[[], Any], log: logging.Logger | None = None) -> Iterator[None]:
    """Within this context, call ``say`` after every `EVERY` seconds of silence.

    ``log`` is listened to; without one, ``say`` alone breaks the silence.
    """
    ear, ended = _Ear(), threading.Event()

    def beat() -> None:
        while not ended.wait(max(0, ear.last + EVERY - time.monotonic())):
            with _turn:
                if time.monotonic() >= ear.last + EVERY:
                    say()
                    ear.emit()

    thread = threading.Thread(target=beat, daemon=True)
    if log:
        log.addHandler(ear)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if log:
            log.removeHandler(ear)
