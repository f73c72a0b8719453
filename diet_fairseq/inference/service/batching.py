"""Dynamic batches: lines of all requests in the queue, translated together.

While the model works, requests queue; the queue is the next batch. Requests take turns with a few
lines each, so that a long one holds up no short one; long lines count more.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

TranslateLines = Callable[[Sequence[str]], list[str]]


#: characters of a usual line
USUAL = 200


def weight(line: str) -> int:
    """How many usual lines take as long as this one: a batch of long lines has fewer of them."""
    return 1 + len(line) // USUAL


class Full(Exception):
    """The queue is full."""


class _Request:
    """Lines in the queue, and the translations so far."""

    def __init__(self, lines: Sequence[str], answer: asyncio.Future) -> None:
        self.lines, self.answer = lines, answer
        self.translations: list[str] = []
        self.taken = 0  # lines that were taken out of the queue

    def take(self, most: int) -> Sequence[str]:
        """The next lines until their weight reaches ``most``: at least one."""
        start = self.taken
        while most > 0 and self.taken < len(self.lines):
            most -= weight(self.lines[self.taken])
            self.taken += 1
        return self.lines[start : self.taken]


class Batches:
    """Translates lines of many requests while `run` is running.

    Args:
        translate: is called in a thread of its own, one call at a time
        most_waiting: lines in the queue
        most_together: lines in a batch, by their `weight`
        turn: lines of one request in a batch before others have their turn, likewise
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
        self._waiting: deque[_Request] = deque()
        self._came = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Lines in the queue, without those of cancelled requests."""
        return sum(
            len(one.lines) - one.taken for one in self._waiting if not one.answer.cancelled()
        )

    async def translate(self, lines: Sequence[str]) -> list[str]:
        """The lines' translations, in their order; lines of a cancelled call are dropped.

        Raises:
            Full: the queue has no room for all of them
        """
        if not lines:
            return []
        if self.waiting + len(lines) > self.most_waiting:
            raise Full
        request = _Request(lines, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._came.set()
        translations: list[str] = await request.answer
        return translations

    async def run(self) -> None:
        """Translate until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "translating") as thread:
            while True:
                await self._came.wait()
                batch = self._next()
                if not batch:
                    self._came.clear()
                    continue
                self.observe(sum(len(part) for _, part in batch))

                async def translate(parts: Sequence[Sequence[str]]) -> list[str]:
                    lines = [line for part in parts for line in part]
                    return await loop.run_in_executor(thread, self._translate, lines)

                try:
                    self._give(batch, await translate([part for _, part in batch]))
                except Exception as error:
                    if len(batch) == 1:
                        self._fail(batch[0][0], error)
                        continue
                    # it may be the fault of one request's lines: each by itself
                    for request, part in batch:
                        try:
                            self._give([(request, part)], await translate([part]))
                        except Exception as its_error:
                            self._fail(request, its_error)

    def _next(self) -> list[tuple[_Request, Sequence[str]]]:
        """Some lines of each request in the queue, in turn; those with more lines queue again."""
        batch: list[tuple[_Request, Sequence[str]]] = []
        room = self.most_together
        while room > 0 and self._waiting:
            request = self._waiting.popleft()
            if request.answer.done():
                continue
            part = request.take(min(room, self.turn))
            room -= sum(map(weight, part))
            batch.append((request, part))
            if request.taken < len(request.lines):
                self._waiting.append(request)
        return batch

    @staticmethod
    def _give(batch: list[tuple[_Request, Sequence[str]]], translations: list[str]) -> None:
        start = 0
        for request, part in batch:
            request.translations += translations[start : start + len(part)]
            start += len(part)
            if len(request.translations) == len(request.lines) and not request.answer.done():
                request.answer.set_result(request.translations)

    @staticmethod
    def _fail(request: _Request, error: Exception) -> None:
        if not request.answer.done():
            request.answer.set_exception(error)
