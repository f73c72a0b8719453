"""Windows of contexts, and the answers that come out of them."""

import os

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from diet_fairseq.data import questions
from diet_fairseq.data.questions import Answer, Context, Question, Windows
from diet_fairseq.errors import UserError
from tests.support import mutants

BOS, PAD, EOS, FIRST = 0, 1, 2, 10


def context_of(length):
    """A text of single characters, each a token."""
    text = "".join(chr(ord("a") + place % 26) for place in range(length))
    tokens = np.arange(FIRST, FIRST + length)
    return Context(text, tokens, list(range(length)), list(range(1, length + 1)))


def windows_of(length=20, answer=(7, 9), longest=14, stride=4, asked=3, **options):
    context = context_of(length)
    answers = [(context.text[answer[0] : answer[1]], answer[0])]
    one = Question("q", np.arange(100, 100 + asked), context, answers)
    return Windows([one], bos=BOS, eos=EOS, pad=PAD, longest=longest, stride=stride, **options)


def batch_of(windows):
    return windows.collater([windows[number] for number in range(len(windows))])


def scores_of(batch, answer, other=()):
    """(B, T, 2): 9 for the answer's first and last token where they are, 5 and 20 elsewhere."""
    tokens = batch["net_input"]["src_tokens"]
    logits = torch.zeros(*tokens.shape, 2)
    logits[tokens.eq(FIRST + answer[0])] += torch.tensor([9.0, 0.0])
    logits[tokens.eq(FIRST + answer[1] - 1)] += torch.tensor([0.0, 9.0])
    for first, last, score in other:
        logits[tokens.eq(first)] += torch.tensor([score, 0.0])
        logits[tokens.eq(last)] += torch.tensor([0.0, score])
    return logits


@pytest.mark.parametrize("left_pad", [False, True])
def test_a_sample_is_a_question_and_a_window_of_its_context(left_pad):
    windows = windows_of(left_pad=left_pad)
    spans = [(window.begin, window.end) for window in windows.windows]
    assert spans == [(0, 8), (4, 12), (8, 16), (12, 20)]
    assert list(windows.sizes) == [14] * 4
    batch = windows.collater([windows[1], windows[3]])
    assert batch["net_input"]["src_tokens"][0].tolist() == [
        BOS, 100, 101, 102, EOS, *range(14, 22), EOS
    ]  # fmt: skip
    assert batch["net_input"]["segments"][0].tolist() == [0] * 5 + [1] * 9
    assert batch["target"].tolist() == [[8, 9], [0, 0]]  # no answer in the last: <s>, as in BERT


@pytest.mark.parametrize("length", [1, 7, 8, 9, 20, 33])
@pytest.mark.parametrize("stride", [1, 3, 8, 100])
def test_every_token_is_the_own_of_the_window_with_the_most_context_around_it(length, stride):
    found = list(questions.windows(0, length, 8, stride))
    for token in range(length):
        around = [
            (min(token - one.begin, one.end - 1 - token), place)
            for place, one in enumerate(found)
            if one.begin <= token < one.end
        ]
        [own] = [n for n, one in enumerate(found) if one.own_begin <= token < one.own_end]
        assert max(around)[0] == {place: most for most, place in around}[own]


def check_the_answer_is_found_whatever_its_place(side):
    """In its window, over all windows, and cut from the text by its characters."""
    for begin in range(20):
        answer = (begin, min(begin + 2, 20))
        windows = windows_of(answer=answer, longest=15, left_pad=side == "left")
        batch = batch_of(windows)
        found = questions.best_answers(scores_of(batch, answer), batch, PAD)
        numbers = (window.question for window in windows.windows)
        best = questions.merged(zip(numbers, found, strict=True))[0]
        assert len({one[:2] for one in best}) == len(best) == 20
        assert best == sorted(best, key=lambda one: -one.score)
        [question] = windows.questions
        assert question.context.between(*best[0][:2]) == question.answers[0][0]
        assert best[0] == Answer(begin, answer[1] - 1, 18.0)


def check_no_answer_comes_from_outside_the_context(side):
    """Not from the question or </s>, nor from padding, nor backwards, nor of too many tokens."""
    windows = windows_of(answer=(6, 8), longest=40, left_pad=side == "left")
    short = windows_of(length=3, answer=(1, 2), longest=40)
    batch = windows.collater([windows[0], short[0]])
    for other in ((101, 102), (EOS, EOS), (PAD, PAD), (BOS, BOS), (FIRST + 15, FIRST + 6),
                  (FIRST, FIRST + 19)):  # fmt: skip
        logits = scores_of(batch, (6, 8), [(*other, 8.0)])
        full, little = questions.best_answers(logits, batch, PAD, longest=5)
        assert full[0] == Answer(6, 7, 18.0)
        assert all(0 <= one.first <= one.last < min(one.first + 5, 20) for one in full)
        assert all(0 <= one.first <= one.last < 3 for one in little)
        assert len(little) == 6


def check_tokens_cover_the_answer_s_characters(_):
    begins, ends = [0, 4, 8, 8, 13], [3, 7, 8, 12, 14]
    for characters, tokens in {
        (4, 7): (1, 1),
        (5, 6): (1, 1),
        (4, 12): (1, 3),
        (8, 12): (3, 3),  # the token before has no characters
        (6, 9): (1, 3),
        (13, 14): (4, 4),
    }.items():
        assert questions.covering(begins, ends, *characters) == tokens


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_answer_is_found_whatever_its_place(side):
    check_the_answer_is_found_whatever_its_place(side)


@pytest.mark.parametrize("side", ["left", "right"])
def test_no_answer_comes_from_outside_the_context(side):
    check_no_answer_comes_from_outside_the_context(side)


def test_tokens_cover_the_answer_s_characters():
    check_tokens_cover_the_answer_s_characters("")


MUTANTS: mutants.Table = [
    (check_the_answer_is_found_whatever_its_place, mutants.answers_one_character_short, "right"),
    (
        check_the_answer_is_found_whatever_its_place,
        mutants.columns_counted_from_the_padding,
        "left",
    ),
    (check_the_answer_is_found_whatever_its_place, mutants.windows_not_merged, "right"),
    (check_no_answer_comes_from_outside_the_context, mutants.answers_from_the_question, "right"),
    (check_tokens_cover_the_answer_s_characters, mutants.an_answer_s_last_token_left_out, ""),
]


@mutants.each(MUTANTS)
def test_a_mutant_is_caught(check, mutant, case):
    mutants.assert_caught(check, mutant, case)


def test_the_data_loader_s_processes_keep_no_file_open_for_a_question():
    """For each tensor that a process has sent, and keeps, it would keep one."""
    questions = [windows_of().questions[0] for _ in range(60)]
    windows = Windows(questions, bos=BOS, pad=PAD, eos=EOS, longest=40)
    batches = iter(DataLoader(windows, collate_fn=windows.collater, num_workers=1))
    opened = []
    for _ in range(50):
        next(batches)
        [worker] = batches._workers
        opened.append(len(os.listdir(f"/proc/{worker.pid}/fd")))
    assert opened[-1] < opened[0] + 20


def test_a_question_that_leaves_no_room_is_refused():
    with pytest.raises(UserError) as error:
        windows_of(longest=6, name="valid.jsonl")
    assert str(error.value) == (
        "valid.jsonl, question q: its 3 tokens leave no room for the context in --max-length 6: "
        "take a larger one, or a smaller --max-question-length"
    )
    assert len(windows_of(longest=6, question_length=2)) == 20


def test_no_questions_are_refused():
    with pytest.raises(UserError) as error:
        Windows([], bos=0, eos=1, pad=2, longest=8, name="valid.jsonl")
    assert str(error.value) == ("valid.jsonl is empty: prepare it from a file that holds questions")
