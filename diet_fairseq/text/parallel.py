"""Lines mapped by several processes, in order, with few lines in memory at a time."""

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
    """``work(chunk, *constants)`` for all chunks of the lines, its results joined."""
    if workers == 1:
        for chunk in chunks(lines):
            yield from work(chunk, *constants)
        return
    with _deaf_pool(workers) as pool, terminable():  # in this order: workers end on SIGTERM
        # Pool.imap would read all lines at once: one round of chunks after the other instead.
        for round_ in chunks(lines, CHUNK * workers):
            parts = [(part, *constants) for part in chunks(round_)]
            yield from chain.from_iterable(pool.starmap(work, parts, chunksize=1))


def _deaf_pool(workers: int) -> Any:
    """Processes that leave Ctrl-C, which reaches all of a terminal, to their parent.

    It must not interrupt the fork: Python would drop it.
    """
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    pool = Pool(workers, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    signal.signal(signal.SIGINT, before)
    if heard:
        pool.terminate()
        raise KeyboardInterrupt
    return pool
