"""A user's mistake: one clear last line on stderr, status 1, no traceback."""

import sys
from collections.abc import Iterator
from types import TracebackType

from .wording import in_words


class UserError(ValueError):
    """Something the user can mend. The text gives name, rule, value, and what to do."""


def user_error_behind(error: BaseException | None) -> UserError | None:
    """The `UserError` that ``error`` is or was raised from; fairseq rewraps what it catches."""
    return next((e for e in chain(error) if isinstance(e, UserError)), None)


def mistake_behind(error: BaseException | None) -> str | None:
    """What to tell the user of ``error``, where it is a user's mistake."""
    mistake = user_error_behind(error)
    if mistake is not None:
        return str(mistake)
    for cause in chain(error):
        if said := in_words(cause):
            return said
    return None


def report_user_errors() -> None:
    """Make an uncaught mistake end the program with its text alone; all else is as before."""
    previous = sys.excepthook
    if getattr(previous, "reports_user_errors", False):
        return

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        mistake = mistake_behind(error)
        if mistake is None:
            previous(kind, error, trace)
        else:
            sys.stdout.flush()
            print(f"error: {one_line(mistake)}", file=sys.stderr)

    excepthook.reports_user_errors = True  # type: ignore[attr-defined]
    sys.excepthook = excepthook


def one_line(text: str) -> str:
    """The text with control characters spelled out: names of files and values may hold any."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised from or upon."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
