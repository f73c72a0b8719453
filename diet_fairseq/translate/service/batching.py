"""Dynamic batching: the lines of several requests are translated together.

While the model translates a batch, new requests wait in a queue. The next batch contains a few
lines of each request in the queue, so that a long request does not delay short requests; long lines
count more. All lines of a batch have the same direction and the same number of hypotheses.
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

#: number of characters that add 1 to the weight of a line
LINE_CHARACTERS = 200
#: `line_weight` of a request's lines at which its turn ends
TURN_WEIGHT = 8


class BatchKey(NamedTuple):
    """Properties that all requests of a batch share."""

    source_lang: str
    target_lang: str
    nbest: int


def line_weight(line: str) -> int:
    """The cost of a line: 1, and 1 more for every `LINE_CHARACTERS` characters."""
    return 1 + len(line) // LINE_CHARACTERS


@dataclass
class Job:
    """A request in the queue.

    Attributes:
        key: the direction and the number of hypotheses
        count: the number of lines of the request
        lines: the lines that are not translated yet
        answer: the future of the translations of all lines
        translations: the translations so far
    """

    key: BatchKey
    count: int
    lines: deque[str]
    answer: "asyncio.Future[list[list[Translation]]]"
    translations: "list[list[Translation]]" = field(default_factory=list)

    def next_turn(self, room: int) -> list[str]:
        """Remove and return the first lines, until their total `line_weight` reaches ``room``."""
        lines: list[str] = []
        while self.lines and room > 0:
            lines.append(self.lines.popleft())
            room -= line_weight(lines[-1])
        return lines


class Batches:
    """The queue of requests, whose lines are translated in batches while `run` is running.

    Args:
        translate: translates lines; it is called in a separate thread, one call at a time
        max_weight: the total `line_weight` at which a batch is full
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
    def waiting_lines(self) -> int:
        """The number of lines in the queue, without the lines of cancelled requests."""
        return sum(len(job.lines) for job in self._queue if not job.answer.done())

    def submit(
        self, key: BatchKey, lines: Sequence[str]
    ) -> "asyncio.Future[list[list[Translation]]]":
        """Add a request to the queue.

        Returns:
            a future of the translations, in the order of the lines; cancelling it removes the lines
        """
        answer = asyncio.get_running_loop().create_future()
        self._queue.append(Job(key, len(lines), deque(lines), answer))
        self._arrival.set()
        return answer

    async def run(self) -> None:
        """Translate batches until this task is cancelled."""
        with ThreadPoolExecutor(1, "translating") as thread:
            while True:
                await self._arrival.wait()
                if batch := self._next_batch():
                    await self._answer(batch, thread)
                else:
                    self._arrival.clear()

    def _next_batch(self) -> list[tuple[Job, list[str]]]:
        """The next batch: requests with the same key, and some lines of each."""
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
        self._queue.extendleft(reversed(others))  # the next batch begins with these requests
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
                else:  # the lines of one request may be the cause: translate each request alone
                    await self._answer([(job, turn)], thread)
            return
        for job, turn in batch:
            job.translations += islice(translations, len(turn))
            if len(job.translations) == job.count and not job.answer.done():
                job.answer.set_result(job.translations)
