"""Faults in answers to questions: where they are, and where they come from."""

from dataclasses import replace

from diet_fairseq.data import questions
from tests.support.mutants.catching import instead_of


@instead_of(questions.Context, "between")
def answers_one_character_short(original, self, first, last):
    return original(self, first, last)[:-1]


@instead_of(questions, "covering")
def an_answer_s_last_token_left_out(original, begins, ends, start, stop):
    first, last = original(begins, ends, start, stop)
    return first, max(first, last - 1)


@instead_of(questions, "best_answers")
def answers_from_the_question(original, logits, batch, pad, **options):
    wider = [
        replace(window, own_begin=window.begin - 5, begin=window.begin - 5)
        for window in batch["windows"]
    ]
    first = batch["first"] - 5
    return original(logits, {**batch, "windows": wider, "first": first}, pad, **options)


@instead_of(questions, "leading")
def columns_counted_from_the_padding(original, tokens, pad):
    return original(tokens, pad) * 0


@instead_of(questions, "merged")
def windows_not_merged(original, found, count=20):
    return dict(found)  # of each question the last window's
