"""Ctrl-C ends a command with status 130 and one line that says how to continue.

A pipe that nobody reads ends it without a message.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(advice: Callable[[], str]) -> Iterator[None]:
    """On Ctrl-C, print ``interrupted: ADVICE`` and exit; on a closed pipe, exit."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stdout.flush()
        start = "\n" if sys.stderr.isatty() else ""  # a terminal shows ^C on the current line
        print(f"{start}interrupted: {advice()}", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None
    except BrokenPipeError:
        # The rest of Python's buffer must not be written when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None
