"""Ctrl-C ends a command with status 130 and one line that says how to continue."""

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import TracebackType


@contextmanager
def interruptible(advice: Callable[[], str]) -> Iterator[None]:
    """On Ctrl-C, print ``interrupted: ADVICE`` and exit."""
    try:
        yield
    except KeyboardInterrupt:
        # Python would wait for a run's processes, which may not have received the signal.
        for child in multiprocessing.active_children():
            if not child.daemon:
                child.terminate()
        _say(advice())
        raise SystemExit(130) from None


def in_words(excepthook: Callable) -> Callable:
    """An excepthook that says so on Ctrl-C, which Python then ends with its usual status."""

    @wraps(excepthook)
    def wrapper(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            _say("run the same command to start over")
        else:
            excepthook(kind, error, trace)

    return wrapper


def _say(advice: str) -> None:
    sys.stdout.flush()
    # A terminal shows ^C on the current line.
    start = "\n" if sys.stderr.isatty() else ""
    print(f"{start}interrupted: {advice}", file=sys.stderr)
