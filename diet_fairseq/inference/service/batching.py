"""Dynamic batching: lines of all requests in the queue are translated together.

While the model works, requests queue; the queue is the next batch. Requests take turns with a few
lines each, so that a long request delays no short one; long lines count more.
"""

import asyncio
from bisect import insort
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..translator import Translation

#: characters of a usual line
USUAL = 200
#: `weight` of a request's lines at which its turn ends
TURN = 8


def weight(line: str) -> int:
    """The cost of a line, in usual lines: a batch of long lines has fewer of them."""
    return 1 + len(line) // USUAL


class Turn(NamedTuple):
    """Some lines of a request, which are translated in one batch."""

    number: int  # turns of lower numbers come first
    lines: list[str]
    answer: "asyncio.Future[list[Translation]]"


class Batches:
    """Translates lines of many requests while `run` is running.

    Args:
        translate: is called in a separate thread, one call at a time
        together: `weight` at which a batch is full
        observe: is called with the number of lines of every batch
    """

    def __init__(
        self,
        translate: "Callable[[Sequence[str]], list[Translation]]",
        together: int,
        observe: Callable[[int], Any],
    ) -> None:
        self._translate, self.together, self.observe = translate, together, observe
        self._queue: list[Turn] = []
        self._number = 0  # of the turn that was translated last
        self._arrival = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of lines in the queue, without those of cancelled requests."""
        return sum(len(turn.lines) for turn in self._queue if not turn.answer.done())

    def submit(self, lines: Sequence[str]) -> "asyncio.Task[list[Translation]]":
        """The translations of the lines, in their order; to cancel it drops the lines."""
        turns: list[Turn] = []
        room = 0
        for line in lines:
            if room <= 0:
                answer = asyncio.get_running_loop().create_future()
                turns.append(Turn(self._number + len(turns), [], answer))
                room = min(TURN, self.together)
            turns[-1].lines.append(line)
            room -= weight(line)
        for turn in turns:
            insort(self._queue, turn, key=lambda turn: turn.number)
        self._arrival.set()
        return asyncio.create_task(self._translations(turns))

    async def _translations(self, turns: list[Turn]) -> "list[Translation]":
        try:
            return [translation for turn in turns for translation in await turn.answer]
        finally:
            for turn in turns:
                turn.answer.cancel()

    async def run(self) -> None:
        """Translate until cancelled."""
        with ThreadPoolExecutor(1, "translating") as thread:
            while True:
                await self._arrival.wait()
                if batch := self._next_batch():
                    self.observe(sum(len(turn.lines) for turn in batch))
                    await self._answer(batch, thread)
                else:
                    self._arrival.clear()

    def _next_batch(self) -> list[Turn]:
        batch, room = [], self.together
        while room > 0 and self._queue:
            turn = self._queue.pop(0)
            self._number = turn.number
            if not turn.answer.done():
                room -= sum(map(weight, turn.lines))
                batch.append(turn)
        return batch

    async def _answer(self, batch: list[Turn], thread: ThreadPoolExecutor) -> None:
        lines = [line for turn in batch for line in turn.lines]
        loop = asyncio.get_running_loop()
        try:
            translations = iter(await loop.run_in_executor(thread, self._translate, lines))
        except Exception as error:
            if len(batch) > 1:  # one turn may be at fault: each is translated alone
                for turn in batch:
                    if not turn.answer.done():
                        await self._answer([turn], thread)
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
                await asyncio.sleep(0)  # the request drops its other turns
            return
        for turn in batch:
            part = list(islice(translations, len(turn.lines)))
            if not turn.answer.done():
                turn.answer.set_result(part)
