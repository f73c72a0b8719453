"""Pairs of texts for next-sentence prediction, drawn from documents as in BERT."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from random import Random

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, FairseqDataset
from torch import Tensor

from ..errors import UserError, check_at_least

#: the number of special tokens in <s> A </s> B </s>
SPECIAL = 3
#: the shortest target length in BERT, of both sides together
SHORTEST = 2

#: where a text begins and ends: numbers of tokens, or of lines
Span = tuple[int, int]


class SentencePairs(FairseqDataset):
    """``<s> A </s> B </s>``: half of the time B follows A, otherwise it is from another document.

    The input is a dataset of lines as fairseq-preprocess writes them: each ends in ``</s>``, and a
    line with only ``</s>`` separates documents. A and B are runs of whole lines without their inner
    ``</s>``, so that ``</s>`` has one meaning. The same arguments give the same pairs.

    fairseq's own ``BlockPairDataset`` keeps the inner ``</s>``, draws from numpy's global state,
    needs BERT's dictionary, and sums the lengths of a text again for every line.

    Raises `UserError` if there is nothing to pair; ``name`` is the data's name in the message.
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
        check_at_least("--tokens-per-sample", tokens_per_sample, SPECIAL + SHORTEST)
        self.lines, self.bos, self.eos = lines, torch.tensor([bos]), torch.tensor([eos])
        lengths = np.asarray(lines.sizes, dtype=np.int64) - 1  # without </s>
        # Line n has the tokens starts[n] to starts[n + 1] of the text without </s>.
        self.starts = np.concatenate([[0], lengths.cumsum()])
        documents = find_runs(lengths > 0)
        if len(documents) < 2:
            raise UserError(
                "--task masked_lm_nsp needs documents separated by blank lines, two or more, but "
                f"{name} holds {len(documents)}: put a blank line after each document and run "
                "fairseq-preprocess again, or use --task masked_lm"
            )
        spans, follows = array("q"), array("b")
        longest = tokens_per_sample - SPECIAL
        for a, b, follow in pair_up(self.starts, documents, longest, Random(seed), short):
            spans.extend((*a, *b))
            follows.append(follow)
        self.spans = np.frombuffer(spans, dtype=np.int64).reshape(-1, 4)  # begin and end of A, of B
        self.follows = np.frombuffer(follows, dtype=np.int8).astype(np.int64)  # 1: B follows A
        self.sizes = self.spans @ np.array([-1, 1, -1, 1]) + SPECIAL

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, index: int) -> Tensor:
        """(T,) int64."""
        a_begin, a_end, b_begin, b_end = self.spans[index].tolist()
        a, b = self._text(a_begin, a_end), self._text(b_begin, b_end)
        return torch.cat([self.bos, a, self.eos, b, self.eos])

    def segments(self, index: int) -> Tensor:
        """(T,) int64: 0 for ``<s> A </s>``, 1 for ``B </s>``."""
        begin, end = self.spans[index][:2].tolist()
        segments = torch.ones(int(self.sizes[index]), dtype=torch.int64)
        segments[: end - begin + 2] = 0
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
    """The segment ids of the samples of `SentencePairs`, as a dataset."""

    def __getitem__(self, index: int) -> Tensor:
        return self.dataset.segments(index)


def find_runs(flags: np.ndarray) -> np.ndarray:
    """(N, 2): begin and end of each run of true values."""
    edges = np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], axis=1)


def pair_up(
    starts: np.ndarray, documents: np.ndarray, longest: int, draw: Random, short: float
) -> Iterator[tuple[Span, Span, bool]]:
    """Yield A, B, and whether B follows A, as BERT's ``create_instances_from_document`` does.

    A document is read in chunks of as many lines as fill a sample; with probability ``short`` all
    its chunks have a shorter length, drawn once. A chunk is split into A and B at a random line, or
    its B is replaced by lines of another document and goes to the next chunk. One thing differs
    from BERT: a chunk has at least two lines if the document has two more. A chunk of BERT has one
    line if this line fills a sample, so that in a text of long lines (paragraphs) B would hardly
    ever follow A. As in BERT, the last line of a document may be left over and is then paired with
    another document, so that B follows A in a little less than half of the pairs.
    """

    def find_end(begin: int, end: int, length: int, at_least: int = 1) -> int:
        """The first line, at most ``end``, at which the lines from ``begin`` reach ``length``."""
        return min(max(bisect_left(starts, starts[begin] + length), begin + at_least), end)

    for number, (begin, end) in enumerate(documents.tolist()):
        target = draw.randint(SHORTEST, longest) if draw.random() < short else longest
        while begin < end:
            stop = find_end(begin, end, target, at_least=2)
            follow = stop - begin > 1 and draw.random() < 0.5
            middle = draw.randrange(begin + 1, stop) if stop - begin > 1 else stop
            b = (middle, stop)
            if not follow:
                index = draw.randrange(len(documents) - 1)
                first, last = documents[index + (index >= number)].tolist()
                first = draw.randrange(first, last)
                b = (first, find_end(first, last, target - int(starts[middle] - starts[begin])))
            spans = [(int(starts[i]), int(starts[j])) for i, j in ((begin, middle), b)]
            yield *shorten_pair(spans[0], spans[1], longest, draw), follow
            begin = stop if follow else middle


def shorten_pair(a: Span, b: Span, longest: int, draw: Random) -> tuple[Span, Span]:
    """A and B, cut to ``longest`` tokens together: first the longer text, then both in turn."""
    lengths = a[1] - a[0], b[1] - b[0]
    if sum(lengths) > longest:
        keep = min(lengths[0], max(longest - lengths[1], (longest + 1) // 2))
        a, b = cut_span(a, keep, draw), cut_span(b, longest - keep, draw)
    return a, b


def cut_span(span: Span, keep: int, draw: Random) -> Span:
    """The span cut to ``keep`` tokens, each removed from its front or back at random."""
    surplus = span[1] - span[0] - keep
    begin = span[0] + (draw.getrandbits(surplus).bit_count() if surplus else 0)
    return begin, begin + keep
