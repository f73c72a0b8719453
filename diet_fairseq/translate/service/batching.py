"""Dynamic batching: lines of all requests in the queue are translated together.

While the model works, requests queue; the queue is the next batch. Requests take turns with a few
lines each, so that a long request does not delay short ones. Long lines count more. A batch has one
direction of translation, and one number of hypotheses.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..translator import Translation

#: characters that count as one line
LINE_CHARACTERS = 200
#: `line_weight` of a request's lines at which its turn ends
TURN_WEIGHT = 8


class BatchKey(NamedTuple):
    """Properties that all requests of a batch share."""

    source_lang: str
    target_lang: str
    nbest: int


def line_weight(line: str) -> int:
    """The cost of a line: 1, and 1 more for each `LINE_CHARACTERS`."""
    return 1 + len(line) // LINE_CHARACTERS


@dataclass
class Job:
    """A request's key, number of lines, waiting lines, and translations so far."""

    key: BatchKey
    count: int
    lines: deque[str]
    answer: "asyncio.Future[list[list[Translation]]]"
    translations: "list[list[Translation]]" = field(default_factory=list)

    def next_turn(self, room: int) -> list[str]:
        """Take lines until their `line_weight` is ``room``."""
        lines: list[str] = []
        while self.lines and room > 0:
            lines.append(self.lines.popleft())
            room -= line_weight(lines[-1])
        return lines


class Batches:
    """Translates lines of many requests while `run` is running.

    Args:
        translate: is called in a separate thread, one call at a time
        max_weight: `line_weight` at which a batch is full
    """

    def __init__(
        self,
        translate: "Callable[[BatchKey, Sequence[str]], list[list[Translation]]]",
        max_weight: int,
    ) -> None:
        self._translate, self.max_weight = translate, max_weight
        self._queue: deque[Job] = deque()
        self._arrival = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of lines in the queue, without those of cancelled requests."""
        return sum(len(job.lines) for job in self._queue if not job.answer.done())

    def submit(
        self, key: BatchKey, lines: Sequence[str]
    ) -> "asyncio.Future[list[list[Translation]]]":
        """The translations of the lines, in their order; to cancel it drops the lines."""
        answer = asyncio.get_running_loop().create_future()
        job = Job(key, len(lines), deque(lines), answer)
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
        """Turns of requests with one key, and their lines."""
        batch: list[tuple[Job, list[str]]] = []
        others: list[Job] = []
        room = self.max_weight
        while room > 0 and self._queue:
            job = self._queue.popleft()
            if batch and job.key != batch[0][0].key:
                others.append(job)
            elif not job.answer.done():
                lines = job.next_turn(min(TURN_WEIGHT, self.max_weight))
                room -= sum(map(line_weight, lines))
                batch.append((job, lines))
                if job.lines:
                    self._queue.append(job)
        self._queue.extendleft(reversed(others))  # they come first in the next batch
        return batch

    async def _answer(self, batch: list[tuple[Job, list[str]]], thread: ThreadPoolExecutor) -> None:
        key = batch[0][0].key
        lines = [line for _, turn in batch for line in turn]
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(thread, self._translate, key, lines)
            translations = iter(results)
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
