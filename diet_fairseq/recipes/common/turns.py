"""Commands that would do the same work at the same time take turns: one does it, others wait."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ...errors import UserError

#: of the folder that the work is done in
LOCKS = "locks"
#: set when the command is interrupted: threads that wait for their turn give up
interrupted = threading.Event()


@contextmanager
def turn(folder: Path, name: str, wait: Callable[[], object]) -> Iterator[None]:
    """Hold the turn of this name among all processes and threads that work in ``folder``.

    ``wait`` is called once if somebody else holds it.

    Raises:
        UserError: the command was interrupted while it waited
    """
    (folder / LOCKS).mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCKS / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        wait()
        while not lock.is_locked:
            if interrupted.is_set():
                raise UserError(
                    "interrupted while it waited for its turn: start it again"
                ) from None
            try:
                lock.acquire(timeout=0.5)
            except Timeout:
                continue
    try:
        yield
    finally:
        lock.release()
