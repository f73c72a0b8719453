"""A parallel map over lines, in order and in bounded memory."""

import signal
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from multiprocessing import Pool
from typing import Any

from ..interrupts import terminable

CHUNK = 10_000  # lines


def chunks(lines: Iterable[str], size: int = CHUNK) -> Iterator[list[str]]:
    """Lists of ``size`` lines; the last may be shorter."""
    lines = iter(lines)
    while chunk := list(islice(lines, size)):
        yield chunk


def map_lines(
    work: Callable[..., list[str]], lines: Iterable[str], *constants: Any, workers: int = 1
) -> Iterator[str]:
    """The joined results of ``work(chunk, *constants)`` for all chunks of lines."""
    if workers == 1:
        for chunk in chunks(lines):
            yield from work(chunk, *constants)
        return
    # workers ignore Ctrl-C, which a terminal sends to all; this order lets SIGTERM end them
    with Pool(workers, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool, terminable():
        # Pool.imap would read all lines at once, so one chunk per worker is read at a time.
        for lines_of_all in chunks(lines, CHUNK * workers):
            parts = [(part, *constants) for part in chunks(lines_of_all)]
            yield from chain.from_iterable(pool.starmap(work, parts, chunksize=1))
