"""Dynamic batching: lines of all requests in the queue are translated together.

While the model works, requests queue; the queue is the next batch. Requests take turns with a few
lines each, so that a long request delays no short one; long lines count more.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..translator import Translation

#: characters of a usual line
USUAL = 200
#: `weight` of a request's lines at which its turn ends
TURN = 8


def weight(line: str) -> int:
    """The cost of a line, in usual lines: a batch of long lines has fewer of them."""
    return 1 + len(line) // USUAL


@dataclass
class Job:
    """A request's number of lines, those that wait, and the translations so far."""

    count: int
    lines: deque[str]
    answer: "asyncio.Future[list[Translation]]"
    translations: "list[Translation]" = field(default_factory=list)

    def next_turn(self, room: int) -> list[str]:
        """Take lines until their `weight` is ``room``."""
        lines: list[str] = []
        while self.lines and room > 0:
            lines.append(self.lines.popleft())
            room -= weight(lines[-1])
        return lines


class Batches:
    """Translates lines of many requests while `run` is running.

    Args:
        translate: is called in a separate thread, one call at a time
        together: `weight` at which a batch is full
    """

    def __init__(
        self, translate: "Callable[[Sequence[str]], list[Translation]]", together: int
    ) -> None:
        self._translate, self.together = translate, together
        self._queue: deque[Job] = deque()
        self._arrival = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of lines in the queue, without those of cancelled requests."""
        return sum(len(job.lines) for job in self._queue if not job.answer.done())

    def submit(self, lines: Sequence[str]) -> "asyncio.Future[list[Translation]]":
        """The translations of the lines, in their order; to cancel it drops the lines."""
        job = Job(len(lines), deque(lines), asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self._arrival.set()
        return job.answer

    async def run(self) -> None:
        """Translate until cancelled."""
        with ThreadPoolExecutor(1, "translating") as thread:
            while True:
                await self._arrival.wait()
                if batch := self._next_batch():
                    await self._answer(batch, thread)
                else:
                    self._arrival.clear()

    def _next_batch(self) -> list[tuple[Job, list[str]]]:
        """Turns of requests, and their lines."""
        batch, room = [], self.together
        while room > 0 and self._queue:
            job = self._queue.popleft()
            if not job.answer.done():
                lines = job.next_turn(min(TURN, self.together))
                room -= sum(map(weight, lines))
                batch.append((job, lines))
                if job.lines:
                    self._queue.append(job)
        return batch

    async def _answer(self, batch: list[tuple[Job, list[str]]], thread: ThreadPoolExecutor) -> None:
        lines = [line for _, turn in batch for line in turn]
        loop = asyncio.get_running_loop()
        try:
            translations = iter(await loop.run_in_executor(thread, self._translate, lines))
        except Exception as error:
            for job, turn in batch:
                if job.answer.done():
                    continue
                if len(batch) == 1:
                    job.answer.set_exception(error)
                else:  # one turn may be at fault: each is translated alone
                    await self._answer([(job, turn)], thread)
            return
        for job, turn in batch:
            job.translations += islice(translations, len(turn))
            if len(job.translations) == job.count and not job.answer.done():
                job.answer.set_result(job.translations)
