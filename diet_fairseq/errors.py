"""A user's mistake: one clear last line on stderr, status 1, no traceback."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import TracebackType

#: an environment variable: with 1 the traceback of a `UserError` is printed, too
DEBUG = "DIET_FAIRSEQ_DEBUG"


class UserError(ValueError):
    """A mistake that the user can correct. The text gives name, rule, value, and what to do."""


def user_error_behind(error: BaseException | None) -> UserError | None:
    """The `UserError` that ``error`` is or was raised from; fairseq rewraps what it catches."""
    while error is not None and not isinstance(error, UserError):
        error = error.__cause__ or error.__context__
    return error


def report_user_errors(excepthook: Callable) -> Callable:
    """``sys.excepthook`` that prints the line of a `UserError`, and leaves other errors alone."""
    if hasattr(excepthook, "reports_user_errors"):
        return excepthook

    @wraps(excepthook)
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        mistake = user_error_behind(error)
        if mistake is None or os.environ.get(DEBUG) == "1":
            excepthook(kind, error, trace)
        if mistake is not None:
            sys.stdout.flush()
            print(f"error: {one_line(str(mistake))}", file=sys.stderr)

    hook.reports_user_errors = True  # type: ignore[attr-defined]
    return hook


@contextmanager
def rephrased(say: Callable[[Exception], str]) -> Iterator[None]:
    """Raise an exception as a `UserError` with the text of ``say``, or the one behind it."""
    try:
        yield
    except Exception as error:
        mistake = user_error_behind(error)
        if mistake is not None:
            raise mistake from None
        raise UserError(say(error)) from error


def one_line(text: str) -> str:
    """The text with control characters escaped: names of files and values may hold any."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


@contextmanager
def exit_with_one_line() -> Iterator[None]:
    """For scripts: a `UserError` ends the program with status 1 and one line, ``error: ...``."""
    try:
        yield
    except UserError as error:
        raise SystemExit(f"error: {one_line(str(error))}") from None
