"""Ctrl-C ends a command with status 130 and one line that says how to continue.

A pipe that nobody reads ends it without a message.
"""

import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: a shell's status of a program that SIGPIPE ended: 128 and its number
CLOSED_PIPE = 141


class Terminated(KeyboardInterrupt):
    """SIGTERM, which reaches one process alone; Ctrl-C reaches those that it started, too."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises `Terminated`, so that a command can end the programs that it started."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruptible(advice: Callable[[], str]) -> Iterator[None]:
    """On Ctrl-C, or SIGTERM where it is `terminable`, print ``interrupted: ADVICE`` and exit."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        # Python would wait for a run's processes, which may not have received the signal.
        for child in multiprocessing.active_children():
            if not child.daemon:
                child.terminate()
        sys.stdout.flush()
        start = "\n" if sys.stderr.isatty() else ""  # a terminal shows ^C on the current line
        print(f"{start}interrupted: {advice()}", file=sys.stderr)
        number = signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT
        raise SystemExit(128 + number) from None


def status_of(run: Callable[[], int]) -> int:
    """The status that ``run`` returns, or `CLOSED_PIPE` if nobody reads its output."""
    try:
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        reader = select.poll()
        reader.register(sys.stdout, 0)
        if not reader.poll(0):  # stdout is read: it was another pipe
            raise
        # The rest of Python's buffer must not be written when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
