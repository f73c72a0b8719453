"""An engine that reverses sentences; a process that has it imports neither PyTorch nor fairseq."""

from collections.abc import Sequence

from diet_fairseq.translate.engine import Hypothesis, Search


class Backwards:
    """An engine whose best hypothesis is the sentence backwards, with one word less in each next.

    It keeps the batches that it was asked for.
    """

    def __init__(self, max_source_length: int | None = 20) -> None:
        self.max_source_length = max_source_length
        self.batches: list[list[list[str]]] = []

    def translate(
        self, sentences: Sequence[Sequence[str]], search: Search
    ) -> list[list[Hypothesis]]:
        self.batches.append([list(sentence) for sentence in sentences])
        return [
            [Hypothesis(list(sentence[::-1])[rank:], -1.0 - rank) for rank in range(search.nbest)]
            for sentence in sentences
        ]
