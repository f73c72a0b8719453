"""Lines of all requests that wait, translated together, a batch at a time.

While the model is at work, requests wait; what waits then is the next batch. Requests take turns
with a few lines each, so that a long one holds up no short one; where lines are long, with fewer.
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
    """As many lines wait as may."""


class _Request:
    """Lines, and what has become of them."""

    def __init__(self, lines: Sequence[str], answer: asyncio.Future) -> None:
        self.lines, self.answer = lines, answer
        self.found: list[str] = []
        self.given = 0  # lines that were taken to be translated

    def take(self, most: int) -> Sequence[str]:
        """The next lines until their weight reaches ``most``: at least one."""
        start = self.given
        while most > 0 and self.given < len(self.lines):
            most -= weight(self.lines[self.given])
            self.given += 1
        return self.lines[start : self.given]


class Batches:
    """Takes lines while `run` is running, and gives their translations.

    :param translate: is called in a thread of its own, one call at a time
    :param most_waiting: lines that may wait
    :param most_together: lines in a batch, by their `weight`
    :param turn: lines that a request has in it before others had theirs, likewise
    :param observe: is called with the number of lines of every batch
    """

    def __init__(
        self,
        translate: TranslateLines,
        most_waiting: int,
        most_together: int = 64,
        turn: int = 8,
        observe: Callable[[int], Any] = lambda lines: None,
    ) -> None:
        self.translate, self.observe = translate, observe
        self.most_waiting, self.most_together, self.turn = most_waiting, most_together, turn
        self._waiting: deque[_Request] = deque()
        self._came = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Lines that wait; those of requests that nobody wants an answer to don't count."""
        return sum(
            len(one.lines) - one.given for one in self._waiting if not one.answer.cancelled()
        )

    async def translated(self, lines: Sequence[str]) -> list[str]:
        """The lines' translations, in their order; cancelled, what is left of them is dropped.

        :raises Full: if there is no room for all of them
        """
        if not lines:
            return []
        if self.waiting + len(lines) > self.most_waiting:
            raise Full
        request = _Request(lines, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._came.set()
        found: list[str] = await request.answer
        return found

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
                lines = [line for _, part in batch for line in part]
                self.observe(len(lines))
                try:
                    found = await loop.run_in_executor(thread, self.translate, lines)
                except Exception as error:
                    self._fail({request for request, _ in batch}, error)
                    continue
                self._give(batch, found)

    def _next(self) -> list[tuple[_Request, Sequence[str]]]:
        """Some lines of the requests that wait, in turn; what is left of them comes last."""
        batch: list[tuple[_Request, Sequence[str]]] = []
        room = self.most_together
        while room > 0 and self._waiting:
            request = self._waiting.popleft()
            if request.answer.done():
                continue
            part = request.take(min(room, self.turn))
            room -= sum(map(weight, part))
            batch.append((request, part))
            if request.given < len(request.lines):
                self._waiting.append(request)
        return batch

    @staticmethod
    def _give(batch: list[tuple[_Request, Sequence[str]]], found: list[str]) -> None:
        start = 0
        for request, part in batch:
            request.found += found[start : start + len(part)]
            start += len(part)
            if len(request.found) == len(request.lines) and not request.answer.done():
                request.answer.set_result(request.found)

    @staticmethod
    def _fail(requests: set[_Request], error: Exception) -> None:
        for request in requests:
            if not request.answer.done():
                request.answer.set_exception(error)
