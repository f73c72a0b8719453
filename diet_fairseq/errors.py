"""Users' mistakes: checks that raise them, and their report, one line on stderr with status 1.

Ctrl-C is reported in the same way, with status 130 and how to continue.
"""

import ast
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import TracebackType
from typing import TypeVar

Number = TypeVar("Number", int, float)
#: environment variable: with 1 the traceback of a `UserError` is printed, too
DEBUG = "DIET_FAIRSEQ_DEBUG"
#: largest values in untrusted files of options that cost time and memory, but add no parameters;
#: a key is a part of the option's name
MAX_UNTRUSTED_VALUES = {
    "positions": 1 << 20,
    "position_max_distance": 1 << 16,
    "position_clip": 1 << 16,
}


class UserError(ValueError):
    """A mistake that the user can correct. The text has name, rule, value and advice."""


# --- checks: they return the value or raise a `UserError` that begins with the flag


def check_at_least(flag: str, value: Number, least: Number, usual: str = "") -> Number:
    """Check that a number is at least ``least`` and finite; the error names the ``usual`` value."""
    infinity = float("inf")
    if least <= value and -infinity < value < infinity:
        return value
    rule = "a finite number" if least == -infinity else f"at least {least}"
    if least > -infinity and not value < least:  # nan or inf
        rule += " and finite"
    advice = f": {usual} is usual" if usual else ""
    raise UserError(f"{flag} must be {rule}, but is {value}{advice}")


def check_positive(flag: str, value: float, usual: str = "") -> float:
    """Check that a number is above 0 and finite; the error names the ``usual`` value."""
    if 0 < value < float("inf"):
        return value
    advice = f": {usual} is usual" if usual else ""
    raise UserError(f"{flag} must be a number above 0, but is {value}{advice}")


def check_betas(flag: str, value: str | Iterable[float]) -> tuple[float, float]:
    """Check Adam's two rates: text on the command line, or a list in a configuration file."""
    try:
        first, second = ast.literal_eval(value) if isinstance(value, str) else value
        if {type(first), type(second)} <= {int, float} and 0 <= first < 1 and 0 <= second < 1:
            return float(first), float(second)
    except (SyntaxError, TypeError, ValueError):
        pass
    raise UserError(
        f"{flag} must be two numbers from 0 to below 1, but is {value!r}: write '(0.9, 0.999)'"
    )


# --- reports


def one_line(text: str) -> str:
    """The text with control characters escaped, because file names and values may contain them."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def find_user_error(error: BaseException | None) -> UserError | None:
    """``error``, or the `UserError` from which it was raised: fairseq wraps errors in others.

    As in Python's traceback, ``raise ... from None`` hides the error before, and an error may be
    its own cause.
    """
    examined: list[BaseException] = []
    while error is not None and not any(error is other for other in examined):
        if isinstance(error, UserError):
            return error
        examined.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def report_user_errors(excepthook: Callable) -> Callable:
    """A ``sys.excepthook`` that prints the line of a `UserError`, and passes other errors on."""
    if hasattr(excepthook, "reports_user_errors"):
        return excepthook

    @wraps(excepthook)
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        mistake = find_user_error(error)
        if mistake is None or os.environ.get(DEBUG) == "1":
            excepthook(kind, error, trace)
        if mistake is not None:
            sys.stdout.flush()
            print(f"error: {one_line(str(mistake))}", file=sys.stderr)

    hook.reports_user_errors = True  # type: ignore[attr-defined]
    return hook


@contextmanager
def as_user_error(message: Callable[[Exception], str]) -> Iterator[None]:
    """Convert an exception to the `UserError` behind it, or to one with the text of ``message``."""
    try:
        yield
    except Exception as error:
        mistake = find_user_error(error)
        if mistake is not None:
            raise mistake from None
        raise UserError(message(error)) from error


@contextmanager
def exit_with_one_line() -> Iterator[None]:
    """In scripts, exit with status 1 and the line ``error: ...`` on a `UserError`."""
    try:
        yield
    except UserError as error:
        raise SystemExit(f"error: {one_line(str(error))}") from None


# --- interrupts


@contextmanager
def interruptible(advice: Callable[[], str]) -> Iterator[None]:
    """On Ctrl-C, print ``interrupted: ADVICE`` and exit; on a closed pipe, exit in silence."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stdout.flush()
        start = "\n" if sys.stderr.isatty() else ""  # a terminal shows ^C on the current line
        print(f"{start}interrupted: {advice()}", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None
    except BrokenPipeError:
        # Python must not write the rest of its buffer at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None


@contextmanager
def silent_interrupts() -> Iterator[None]:
    """While PyTorch is imported, Ctrl-C ends the process at once, with a shell's status 130.

    Python's KeyboardInterrupt in the middle of PyTorch's initialisation aborts the process.
    """
    handler = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if handler is not signal.default_int_handler or not in_main_thread:
        yield  # Ctrl-C is ignored, or has another handler
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
