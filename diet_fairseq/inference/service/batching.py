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

#: characters of a usual line
USUAL = 200
#: limit of a request's `weight` in a batch before the others have their turn
TURN = 8


def weight(line: str) -> int:
    """The cost of a line, in usual lines: a batch of long lines has fewer of them."""
    return 1 + len(line) // USUAL


class _Request:
    """A request's lines in the queue, and the translations of those before them."""

    def __init__(self, lines: Sequence[str], answer: "asyncio.Future[list[Translation]]") -> None:
        self.lines, self.answer = deque(lines), answer
        self.total = len(lines)
        self.translations: list[Translation] = []

    def take(self, most: int) -> list[str]:
        """The next lines until their weight reaches ``most``: at least one."""
        lines: list[str] = []
        while most > 0 and self.lines:
            lines.append(self.lines.popleft())
            most -= weight(lines[-1])
        return lines


class Batches:
    """Translates lines of many requests while `run` is running.

    Args:
        translate: is called in a separate thread, one call at a time
        together: the limit of a batch's `weight`
        observe: is called with the number of lines of every batch
    """

    def __init__(
        self,
        translate: "Callable[[Sequence[str]], list[Translation]]",
        together: int,
        observe: Callable[[int], Any],
    ) -> None:
        self._translate, self.together, self.observe = translate, together, observe
        self._queue: deque[_Request] = deque()
        self._arrival = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of lines in the queue, without those of cancelled requests."""
        return sum(len(request.lines) for request in self._queue if not request.answer.done())

    def submit(self, lines: Sequence[str]) -> "asyncio.Future[list[Translation]]":
        """The translations of the lines, in their order; to cancel it drops the lines."""
        answer = asyncio.get_running_loop().create_future()
        self._queue.append(_Request(lines, answer))
        self._arrival.set()
        return answer

    async def run(self) -> None:
        """Translate until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "translating") as thread:

            async def translate(batch: list[tuple[_Request, list[str]]]) -> None:
                lines = [line for _, part in batch for line in part]
                try:
                    translations = await loop.run_in_executor(thread, self._translate, lines)
                except Exception as error:
                    if len(batch) > 1:  # one request may be at fault: each is translated alone
                        for request_lines in batch:
                            await translate([request_lines])
                    elif not batch[0][0].answer.done():
                        batch[0][0].answer.set_exception(error)
                    return
                remaining = iter(translations)
                for request, part in batch:
                    request.translations += islice(remaining, len(part))
                    is_complete = len(request.translations) == request.total
                    if is_complete and not request.answer.done():
                        request.answer.set_result(request.translations)

            while True:
                await self._arrival.wait()
                if batch := self._next_batch():
                    self.observe(sum(len(lines) for _, lines in batch))
                    await translate(batch)
                else:
                    self._arrival.clear()

    def _next_batch(self) -> list[tuple[_Request, list[str]]]:
        """The next lines of each request in turn; requests with further lines queue again."""
        batch = []
        room = self.together
        while room > 0 and self._queue:
            request = self._queue.popleft()
            if request.answer.done():
                continue
            lines = request.take(min(room, TURN))
            room -= sum(map(weight, lines))
            batch.append((request, lines))
            if request.lines:
                self._queue.append(request)
        return batch
