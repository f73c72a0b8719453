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
    with create_pool(workers) as pool, terminable():  # this order lets SIGTERM end the workers
        # Pool.imap would read all lines at once, so one chunk per worker is read at a time.
        for lines_of_all in chunks(lines, CHUNK * workers):
            parts = [(part, *constants) for part in chunks(lines_of_all)]
            yield from chain.from_iterable(pool.starmap(work, parts, chunksize=1))


def create_pool(workers: int) -> Any:
    """A pool of processes that ignore Ctrl-C, which the terminal sends to parent and children.

    An interrupt during the fork, which Python would drop, is raised after it.
    """
    interrupts = []
    handler = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
    pool = Pool(workers, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    signal.signal(signal.SIGINT, handler)
    if interrupts:
        pool.terminate()
        raise KeyboardInterrupt
    return pool
