"""Dynamic batching: the sentences of several requests are translated together.

While the model translates a batch, new requests wait in a queue. The next batch contains a few
sentences of each request in the queue, so that a long request does not delay short requests; long
sentences count more. All sentences of a batch have the same direction and the same number of
hypotheses.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..translation import Translation

#: number of characters that add 1 to the weight of a sentence
SENTENCE_CHARACTERS = 200
#: `sentence_weight` of a request's sentences at which its turn ends
MAX_TURN_WEIGHT = 8


class BatchKey(NamedTuple):
    """Properties that all requests of a batch share."""

    source_lang: str
    target_lang: str
    nbest: int


def sentence_weight(sentence: str) -> int:
    """The cost of a sentence: 1, and 1 more for every `SENTENCE_CHARACTERS` characters."""
    return 1 + len(sentence) // SENTENCE_CHARACTERS


@dataclass
class Job:
    """A request in the queue.

    Attributes:
        key: the direction and the number of hypotheses
        count: the number of sentences of the request
        sentences: the sentences that are not translated yet
        answer: the future of the translations of all sentences
        translations: the translations so far
    """

    key: BatchKey
    count: int
    sentences: deque[str]
    answer: "asyncio.Future[list[list[Translation]]]"
    translations: "list[list[Translation]]" = field(default_factory=list)

    def next_turn(self, room: int) -> list[str]:
        """Remove and return the first sentences, until their weights add up to ``room``.

        The weights are `sentence_weight`.
        """
        sentences: list[str] = []
        while self.sentences and room > 0:
            sentences.append(self.sentences.popleft())
            room -= sentence_weight(sentences[-1])
        return sentences


class Batches:
    """The queue of requests, whose sentences are translated in batches while `run` is running.

    Args:
        translate: translates sentences; it is called in a separate thread, one call at a time
        max_weight: the total `sentence_weight` at which a batch is full
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
    def waiting_sentences(self) -> int:
        """The number of sentences in the queue, without the sentences of cancelled requests."""
        return sum(len(job.sentences) for job in self._queue if not job.answer.done())

    def submit(
        self, key: BatchKey, sentences: Sequence[str]
    ) -> "asyncio.Future[list[list[Translation]]]":
        """Add a request to the queue.

        Returns:
            a future of the translations, in the order of the sentences; cancelling it removes the
            sentences
        """
        answer = asyncio.get_running_loop().create_future()
        self._queue.append(Job(key, len(sentences), deque(sentences), answer))
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
        """The next batch: requests with the same key, and some sentences of each."""
        batch: list[tuple[Job, list[str]]] = []
        others: list[Job] = []
        room = self.max_weight
        while room > 0 and self._queue:
            job = self._queue.popleft()
            if batch and job.key != batch[0][0].key:
                others.append(job)
            elif not job.answer.done():
                sentences = job.next_turn(min(MAX_TURN_WEIGHT, self.max_weight))
                room -= sum(map(sentence_weight, sentences))
                batch.append((job, sentences))
                if job.sentences:
                    self._queue.append(job)
        self._queue.extendleft(reversed(others))  # the next batch begins with these requests
        return batch

    async def _answer(self, batch: list[tuple[Job, list[str]]], thread: ThreadPoolExecutor) -> None:
        key = batch[0][0].key
        sentences = [sentence for _, turn in batch for sentence in turn]
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(thread, self._translate, key, sentences)
            translations = iter(results)
        except Exception as error:
            for job, turn in batch:
                if job.answer.done():
                    continue
                if len(batch) == 1:
                    job.answer.set_exception(error)
                else:  # one request may be the cause: translate each request alone
                    await self._answer([(job, turn)], thread)
            return
        for job, turn in batch:
            job.translations += islice(translations, len(turn))
            if len(job.translations) == job.count and not job.answer.done():
                job.answer.set_result(job.translations)
