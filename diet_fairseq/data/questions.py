"""Questions and their contexts as samples, and answers out of a model's scores.

A context longer than a sample is read in overlapping windows, as in BERT's run_squad.py (Devlin et
al. 2019); so are the rules that are called BERT's here.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import FairseqDataset, data_utils
from torch import Tensor

from ..errors import UserError
from .sentence_pairs import SPECIAL

#: answers that are looked at for each question, as in BERT's script
BEST = 20


@dataclass(frozen=True)
class Context:
    """A text, its tokens (n,) int64, and the characters that each begins and ends at.

    ``rules`` names those that answers are compared by (`answers.rules_of`). Tokens are no tensor:
    a batch has its questions and their contexts, and for every tensor that a process of the data
    loader has once sent, it keeps a file open.
    """

    text: str
    tokens: np.ndarray
    begins: Sequence[int]
    ends: Sequence[int]
    rules: str = "squad"

    def between(self, first: int, last: int) -> str:
        """The characters from one token to another, both included."""
        return self.text[self.begins[first] : self.ends[last]]


@dataclass(frozen=True)
class Question:
    """A question's tokens (q,) int64, and its right answers: text and first character of each."""

    id: str
    tokens: np.ndarray
    context: Context
    answers: Sequence[tuple[str, int]]

    def span(self) -> tuple[int, int]:
        """First and last token of the context that have a part of the first right answer."""
        text, start = self.answers[0]
        return covering(self.context.begins, self.context.ends, start, start + len(text))


def covering(begins: Sequence[int], ends: Sequence[int], start: int, stop: int) -> tuple[int, int]:
    """First and last token that have a part of the characters from ``start`` up to ``stop``."""
    first = bisect_right(ends, start)
    last = bisect_left(begins, stop) - 1
    return min(first, len(ends) - 1), max(last, min(first, len(ends) - 1))


@dataclass(frozen=True)  # fairseq makes plain tuples of named ones in a batch
class Window:
    """What one sample has of a context: tokens ``begin`` up to ``end``.

    An answer may begin at tokens ``own_begin`` up to ``own_end``, which have more context on their
    poorer side here than in any other window. Each token of a context is some window's own.
    """

    question: int
    begin: int
    end: int
    own_begin: int
    own_end: int


def windows(question: int, length: int, room: int, stride: int) -> Iterable[Window]:
    """Windows of ``room`` tokens that begin ``stride`` tokens after each other."""
    begins = [0]
    while begins[-1] + room < length:
        begins.append(begins[-1] + min(stride, room))
    ends = [min(begin + room, length) for begin in begins]
    middles = [(end - 1 + after) // 2 + 1 for end, after in zip(ends, begins[1:], strict=False)]
    own = [0, *middles, length]
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        yield Window(question, begin, end, own[place], own[place + 1])


class Windows(FairseqDataset):
    """``<s> question </s> context </s>``, a sample for each window of a question's context.

    Batches have ``target`` (B, 2) int64, the columns of the answer's first and last token, counted
    from the sample's first token. In a window without the whole answer both are 0, ``<s>``, as in
    BERT. ``questions`` and ``windows`` are what a batch is about, for those who score it.

    Args:
        longest: tokens of a sample
        stride: from the beginning of one window to that of the next
        question_length: tokens of a question; what is longer is cut at its end
        name: of the data, in messages

    Raises:
        UserError: a question leaves no room for its context, or there is none
    """

    def __init__(
        self,
        questions: Sequence[Question],
        *,
        bos: int,
        eos: int,
        pad: int,
        longest: int,
        stride: int = 128,
        question_length: int = 64,
        left_pad: bool = False,
        name: str = "the data",
    ) -> None:
        super().__init__()
        if not questions:
            raise UserError(f"{name} is empty: prepare it from a file that holds questions")
        self.questions, self.pad, self.left_pad = questions, pad, left_pad
        self.bos, self.eos = np.array([bos]), np.array([eos])
        self.question_length = question_length
        self.windows: list[Window] = []
        for number, question in enumerate(questions):
            room = longest - SPECIAL - len(self._asked(number))
            if room < 1:
                raise UserError(
                    f"{name}, question {question.id}: its {len(self._asked(number))} tokens leave "
                    f"no room for the context in --max-length {longest}: take a larger one, or a "
                    "smaller --max-question-length"
                )
            self.windows += windows(number, len(question.context.tokens), room, stride)
        self.sizes = np.array([self.first_column(one) + one.end - one.begin + 1
                               for one in self.windows])  # fmt: skip

    def _asked(self, number: int) -> np.ndarray:
        return self.questions[number].tokens[: self.question_length]

    def first_column(self, window: Window) -> int:
        """Of the context."""
        return len(self._asked(window.question)) + 2

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        window = self.windows[index]
        question = self.questions[window.question]
        asked = [self.bos, self._asked(window.question), self.eos]
        context = [question.context.tokens[window.begin : window.end], self.eos]
        tokens = torch.from_numpy(np.concatenate([*asked, *context]))  # (T,)
        segments = torch.zeros_like(tokens)  # (T,)
        segments[self.first_column(window) :] = 1
        return {
            "id": index,
            "tokens": tokens,
            "segments": segments,
            "target": self._target(window, question) if question.answers else None,
            "question": question,
            "window": window,
            "first": self.first_column(window),
        }

    def _target(self, window: Window, question: Question) -> tuple[int, int]:
        first, last = question.span()
        if not window.begin <= first <= last < window.end:
            return 0, 0
        shift = self.first_column(window) - window.begin
        return first + shift, last + shift

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        if not samples:
            return {}

        def padded(name: str, value: int) -> Tensor:
            return data_utils.collate_tokens(
                [one[name] for one in samples], value, left_pad=self.left_pad
            )

        lengths = torch.tensor([len(one["tokens"]) for one in samples])
        batch = {
            "id": torch.tensor([one["id"] for one in samples]),
            "net_input": {
                "src_tokens": padded("tokens", self.pad),  # (B, T)
                "src_lengths": lengths,  # (B,)
                "segments": padded("segments", 0),  # (B, T)
            },
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "questions": [one["question"] for one in samples],
            "windows": [one["window"] for one in samples],
            "first": torch.tensor([one["first"] for one in samples]),  # (B,)
        }
        if all(one["target"] is not None for one in samples):
            batch["target"] = torch.tensor([one["target"] for one in samples])  # (B, 2)
        return batch

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    num_tokens = size


class Answer(NamedTuple):
    """Tokens ``first`` to ``last`` of a context, and the sum of their two scores."""

    first: int
    last: int
    score: float


def best_answers(
    logits: Tensor, batch: dict[str, Any], pad: int, count: int = BEST, longest: int = 30
) -> list[list[Answer]]:
    """For each window the answers with the highest scores, the best first.

    They are the best of all that begin at the window's own tokens and end in it, where BERT's
    script looks at the 20 best beginnings and ends.

    Args:
        logits: (B, T, 2), of beginnings and ends
        count: at most so many for each
        longest: tokens of an answer
    """
    at = leading(batch["net_input"]["src_tokens"], pad) + batch["first"]  # (B,)
    begin, end, own_begin, own_end = (
        at.new_tensor([getattr(window, name) for window in batch["windows"]])  # (B,)
        for name in ("begin", "end", "own_begin", "own_end")
    )
    token = torch.arange(logits.size(1), device=at.device) - (at - begin)[:, None]  # (B, T)
    outside = (token < own_begin[:, None]) | (token >= own_end[:, None])
    starts = logits[..., 0].float().masked_fill(outside, -torch.inf)  # (B, T)
    stops = logits[..., 1].float().masked_fill(token >= end[:, None], -torch.inf)
    stops = torch.nn.functional.pad(stops, (0, longest - 1), value=-torch.inf)
    scores = starts[:, :, None] + stops.unfold(1, longest, 1)  # (B, T, longest)
    values, best = scores.flatten(1).topk(min(count, scores[0].numel()))  # (B, count)
    first = token.gather(1, best // longest)
    rows = zip(first.tolist(), (first + best % longest).tolist(), values.tolist(), strict=True)
    return [[Answer(*one) for one in zip(*row, strict=True) if one[2] > -np.inf] for row in rows]


def leading(tokens: Tensor, pad: int) -> Tensor:
    """(B, T) -> (B,): how many columns of padding come first."""
    return tokens.eq(pad).long().cumprod(1).sum(1)


def merged(found: Iterable[tuple[int, list[Answer]]], count: int = BEST) -> dict[int, list[Answer]]:
    """The best answers of each question over all its windows, the best first."""
    by_question: dict[int, list[Answer]] = defaultdict(list)
    for question, answers in found:
        by_question[question] += answers
    return {
        question: sorted(answers, key=lambda one: -one.score)[:count]
        for question, answers in by_question.items()
    }
