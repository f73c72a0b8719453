"""Answers that need no learning: what a model must beat before it has understood anything."""

import re
from collections import Counter
from collections.abc import Callable, Iterable

import regex

from ...data import answers
from .squad import Question

#: characters of scripts that have no spaces between words: Thai, Japanese, Chinese
UNSPACED = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff"
#: one of these, or a word, of which vowel signs are a part (\p{M}: Hindi, Bengali, Telugu, Arabic)
WORD = regex.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[\w\p{{M}}\p{{N}}])+")
SENTENCE = re.compile(r".*?(?:[.!?…।](?=\s|$)|[。！？]|$)", re.DOTALL)
#: words of a window, of which the answer is a part
WINDOW = 10


def first_sentence(question: Question) -> str:
    """That of the context."""
    found = SENTENCE.match(question.context.strip())
    return found[0] if found else ""


def best_window(question: Question) -> str:
    """What a window of `WINDOW` words says beyond the question.

    It is the window that has most words in common with the question, rare words of the context
    counting more (the sliding window of Richardson et al. 2013), and the answer is its longest run
    of other words.
    """
    words = [(one[0].lower(), *one.span()) for one in WORD.finditer(question.context)]
    counts = Counter(word for word, _, _ in words)
    asked = {one.lower() for one in WORD.findall(question.text)}
    weights = [1 / counts[word] if word in asked else 0.0 for word, _, _ in words]
    places = range(max(1, len(words) - WINDOW + 1))
    best = max(places, key=lambda place: sum(weights[place : place + WINDOW]))
    runs: list[list[tuple[str, int, int]]] = [[]]
    for one in words[best : best + WINDOW]:
        if one[0] in asked:
            runs.append([])
        else:
            runs[-1].append(one)
    run = max(runs, key=len)
    return question.context[run[0][1] : run[-1][2]] if run else ""


BASELINES: dict[str, Callable[[Question], str]] = {
    "the first sentence": first_sentence,
    "the best-matching window": best_window,
}


def scores(questions: Iterable[Question], rules: answers.Rules) -> dict[str, dict[str, float]]:
    """Baseline -> metric -> percent, over all questions."""
    questions = list(questions)
    return {
        name: answers.percent(((answer(one), one.right) for one in questions), rules)
        for name, answer in BASELINES.items()
    }
