"""Dynamic batching: lines of all requests in the queue are translated together.

While the model works, requests queue; the queue is the next batch. Requests take turns with a few
lines each, so that a long request delays no short one; long lines count more.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..translator import Translation

TranslateLines = Callable[[Sequence[str]], "list[Translation]"]
#: characters of a usual line
USUAL = 200


def weight(line: str) -> int:
    """The cost of a line, in usual lines: a batch of long lines has fewer of them."""
    return 1 + len(line) // USUAL


class QueueFull(Exception):
    """The queue is full."""


class _Request:
    """A request's lines and the translations so far."""

    def __init__(self, lines: Sequence[str], answer: asyncio.Future) -> None:
        self.lines, self.answer = lines, answer
        self.translations: list[Translation] = []
        self.position = 0  # of the first line in the queue

    @property
    def waiting(self) -> int:
        """The number of lines in the queue."""
        return 0 if self.answer.done() else len(self.lines) - self.position

    def take(self, most: int) -> Sequence[str]:
        """The next lines until their weight reaches ``most``: at least one."""
        start = self.position
        while most > 0 and self.position < len(self.lines):
            most -= weight(self.lines[self.position])
            self.position += 1
        return self.lines[start : self.position]


Part = tuple[_Request, Sequence[str]]


class Batches:
    """Translates lines of many requests while `run` is running.

    Args:
        translate: is called in a separate thread, one call at a time
        most_waiting: the limit of lines in the queue
        most_together: the limit of a batch's `weight`
        turn: the limit of a request's `weight` in a batch before others have their turn
        observe: is called with the number of lines of every batch
    """

    def __init__(
        self,
        translate: TranslateLines,
        most_waiting: int,
        most_together: int = 64,
        turn: int = 8,
        observe: Callable[[int], Any] = lambda lines: None,
    ) -> None:
        self._translate, self.observe = translate, observe
        self.most_waiting, self.most_together, self.turn = most_waiting, most_together, turn
        self._queue: deque[_Request] = deque()
        self._arrival = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of lines in the queue, without those of cancelled requests."""
        return sum(request.waiting for request in self._queue)

    async def translate(self, lines: Sequence[str]) -> "list[Translation]":
        """The lines' translations, in their order; lines of a cancelled call are dropped.

        Raises:
            QueueFull: the queue has no room for all of them
        """
        if not lines:
            return []
        if self.waiting + len(lines) > self.most_waiting:
            raise QueueFull
        request = _Request(lines, asyncio.get_running_loop().create_future())
        self._queue.append(request)
        self._arrival.set()
        translations: list[Translation] = await request.answer
        return translations

    async def run(self) -> None:
        """Translate until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "translating") as thread:

            async def translate(batch: list[Part]) -> None:
                lines = [line for _, part in batch for line in part]
                translations = await loop.run_in_executor(thread, self._translate, lines)
                self._deliver(batch, translations)

            while True:
                await self._arrival.wait()
                batch = self._next_batch()
                if not batch:
                    self._arrival.clear()
                    continue
                self.observe(sum(len(part) for _, part in batch))
                try:
                    await translate(batch)
                except Exception as error:
                    if len(batch) == 1:
                        self._fail(batch[0][0], error)
                        continue
                    # one request's lines may be at fault: each request is translated alone
                    for part in batch:
                        try:
                            await translate([part])
                        except Exception as part_error:
                            self._fail(part[0], part_error)

    def _next_batch(self) -> list[Part]:
        """The next lines of each request in turn; requests with further lines queue again."""
        batch: list[Part] = []
        room = self.most_together
        while room > 0 and self._queue:
            request = self._queue.popleft()
            if request.answer.done():
                continue
            lines = request.take(min(room, self.turn))
            room -= sum(map(weight, lines))
            batch.append((request, lines))
            if request.waiting:
                self._queue.append(request)
        return batch

    @staticmethod
    def _deliver(batch: list[Part], translations: "list[Translation]") -> None:
        remaining = iter(translations)
        for request, lines in batch:
            request.translations += islice(remaining, len(lines))
            if len(request.translations) == len(request.lines) and not request.answer.done():
                request.answer.set_result(request.translations)

    @staticmethod
    def _fail(request: _Request, error: Exception) -> None:
        if not request.answer.done():
            request.answer.set_exception(error)
