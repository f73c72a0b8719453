"""fairseq's simple progress bar says something at least every 20 seconds, as `heartbeat` does."""

import logging
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from fairseq.logging import progress_bar

from ..progress import heartbeat


def audible(iterate: Callable) -> Callable:
    """Report the progress of a loop whose steps are long."""

    @wraps(iterate)
    def wrapper(self: Any) -> Iterator[Any]:
        def say() -> None:
            log = progress_bar.logger
            log.info(f"{self.prefix}: at work on {(self.i or 0) + 1} of {self.size or len(self)}")

        with heartbeat(say, logging.getLogger("fairseq")):
            yield from iterate(self)

    return wrapper
