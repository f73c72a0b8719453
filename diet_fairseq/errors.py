"""A user's mistake: one clear last line on stderr, status 1, no traceback."""

import sys
from types import TracebackType


class UserError(ValueError):
    """Something the user can mend. The text gives name, rule, value, and what to do."""


def user_error_behind(error: BaseException | None) -> UserError | None:
    """The `UserError` that ``error`` is or was raised from; fairseq rewraps what it catches."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, UserError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def report_user_errors() -> None:
    """Make an uncaught `UserError` end the program with its text alone; all else is as before."""
    previous = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        mistake = user_error_behind(error)
        if mistake is None:
            previous(kind, error, trace)
        else:
            sys.stdout.flush()
            print(f"error: {mistake}", file=sys.stderr)

    sys.excepthook = excepthook
