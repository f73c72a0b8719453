"""Pairs of texts for next-sentence prediction, drawn from documents as BERT drew them."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from random import Random

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, FairseqDataset
from torch import Tensor

from ..errors import UserError

#: <s> A </s> B </s>
SPECIAL = 3
#: the shortest text that BERT aims at, both sides together
SHORTEST = 2

Span = tuple[int, int]


class SentencePairs(FairseqDataset):
    """``<s> A </s> B </s>``: half of the time B follows A, else it is of another document.

    What is paired is a dataset of lines as fairseq-preprocess writes them: each ends in ``</s>``,
    and a line of ``</s>`` alone parts documents. A and B are runs of whole lines whose inner
    ``</s>`` are dropped, so that ``</s>`` has one meaning. The same arguments give the same pairs.

    fairseq's own ``BlockPairDataset`` keeps the inner ``</s>``, draws from numpy's global state,
    wants BERT's dictionary and sums up a text again for every line that it gets.

    Raises `UserError` when there is nothing to pair; ``name`` says what.
    """

    def __init__(
        self,
        lines: FairseqDataset,
        *,
        bos: int,
        eos: int,
        tokens_per_sample: int,
        seed: str,
        name: str = "the text",
        short: float = 0.1,
    ) -> None:
        super().__init__()
        if tokens_per_sample < SHORTEST + SPECIAL:
            raise UserError(
                f"--tokens-per-sample {tokens_per_sample} has no room for <s> A </s> B </s>: take "
                f"{SHORTEST + SPECIAL} or more"
            )
        self.lines, self.bos, self.eos = lines, bos, eos
        lengths = np.asarray(lines.sizes, dtype=np.int64) - 1  # without </s>
        # Line n holds the tokens starts[n] to starts[n + 1] of a text that has no </s>.
        self.starts = np.concatenate([[0], lengths.cumsum()])
        documents = runs(lengths > 0)
        if len(documents) < 2:
            raise UserError(
                "--task masked_lm_nsp needs documents parted by blank lines, two or more, but "
                f"{name} holds {len(documents)}: put a blank line after each document and run "
                "fairseq-preprocess again, or take --task masked_lm"
            )
        spans, follows = array("q"), array("b")
        pairs = pair_up(self.starts, documents, tokens_per_sample - SPECIAL, Random(seed), short)
        for one, other, follow in pairs:
            spans.extend((*one, *other))
            follows.append(follow)
        self.spans = np.frombuffer(spans, dtype=np.int64).reshape(-1, 4)  # where A and B begin, end
        self.follows = np.frombuffer(follows, dtype=np.int8).astype(np.int64)  # 1: B follows A
        self.sizes = self.spans @ np.array([-1, 1, -1, 1]) + SPECIAL

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, index: int) -> Tensor:
        """(T,) int64."""
        one_begin, one_end, other_begin, other_end = self.spans[index].tolist()
        bos, eos = torch.tensor([self.bos]), torch.tensor([self.eos])
        one, other = self._text(one_begin, one_end), self._text(other_begin, other_end)
        return torch.cat([bos, one, eos, other, eos])

    def segments(self, index: int) -> Tensor:
        """(T,) int64: 0 for ``<s> A </s>``, 1 for ``B </s>``."""
        one_begin, one_end, _, _ = self.spans[index].tolist()
        segments = torch.ones(int(self.sizes[index]), dtype=torch.int64)
        segments[: one_end - one_begin + 2] = 0
        return segments

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    num_tokens = size

    def _text(self, begin: int, end: int) -> Tensor:
        """(end - begin,): the tokens of the text without ``</s>``."""
        first = int(np.searchsorted(self.starts, begin, side="right")) - 1
        last = int(np.searchsorted(self.starts, end))
        text = torch.cat([self.lines[line][:-1] for line in range(first, last)])
        return text[begin - int(self.starts[first]) :][: end - begin]


class Segments(BaseWrapperDataset):
    """The segment ids of `SentencePairs`, as a dataset beside it."""

    def __getitem__(self, index: int) -> Tensor:
        return self.dataset.segments(index)


def runs(flags: np.ndarray) -> np.ndarray:
    """(N, 2): where each run of true values begins and ends."""
    edges = np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], axis=1)


def pair_up(
    starts: np.ndarray, documents: np.ndarray, longest: int, draw: Random, short: float
) -> Iterator[tuple[Span, Span, bool]]:
    """A, B, and whether B follows A: BERT's ``create_instances_from_document`` for every document.

    A document is read in chunks that have as many lines as fill a sample; with probability
    ``short`` all its chunks are shorter, by a length drawn once. A chunk is parted into A and B at
    a line drawn, or its B is replaced by lines of another document and stands in the next chunk.
    One thing differs: a chunk has two lines where there are two. BERT's has one where that fills a
    sample, so that a text of long lines (paragraphs) would hardly have a B that follows. As in
    BERT, the last line of a document may be left alone and then is followed by another document's:
    the share of those that follow is a little below one half.
    """
    for number, (begin, end) in enumerate(documents.tolist()):
        target = draw.randint(SHORTEST, longest) if draw.random() < short else longest
        while begin < end:
            stop = filled(starts, begin, end, target, at_least=2)
            follow = stop - begin > 1 and draw.random() < 0.5
            middle = draw.randrange(begin + 1, stop) if stop - begin > 1 else stop
            one = other = (middle, stop)
            if not follow:
                another = draw.randrange(len(documents) - 1)
                first, last = documents[another + (another >= number)].tolist()
                first = draw.randrange(first, last)
                room = target - int(starts[middle] - starts[begin])
                other = (first, filled(starts, first, last, room))
            one = (begin, middle)
            yield *shortened(span(starts, one), span(starts, other), longest, draw), follow
            begin = stop if follow else middle


def filled(starts: np.ndarray, begin: int, end: int, length: int, at_least: int = 1) -> int:
    """The line before ``end`` at which lines from ``begin`` on have that length together."""
    return min(max(bisect_left(starts, starts[begin] + length), begin + at_least), end)


def span(starts: np.ndarray, lines: Span) -> Span:
    return int(starts[lines[0]]), int(starts[lines[1]])


def shortened(one: Span, other: Span, longest: int, draw: Random) -> tuple[Span, Span]:
    """Both cut to ``longest`` together: the longer one first, then each in turn.

    Every token is taken from the front or the back, as a coin falls.
    """
    lengths = one[1] - one[0], other[1] - other[0]
    if sum(lengths) > longest:
        keep = min(lengths[0], max(longest - lengths[1], (longest + 1) // 2))
        one, other = cut(one, keep, draw), cut(other, longest - keep, draw)
    return one, other


def cut(whole: Span, keep: int, draw: Random) -> Span:
    away = whole[1] - whole[0] - keep
    begin = whole[0] + (draw.getrandbits(away).bit_count() if away else 0)
    return begin, begin + keep
