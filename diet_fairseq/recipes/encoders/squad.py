"""Files of questions in SQuAD's format, version 1.1, which XQuAD, MLQA and TyDiQA-GoldP have, too.

{"data": [{"paragraphs": [{"context": "...", "qas": [
    {"id": "...", "question": "...", "answers": [{"text": "...", "answer_start": 12}]}]}]}]}
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ...errors import UserError
from ..common.json_files import read_json


@dataclass(frozen=True)
class Question:
    """A question on a context; ``answers`` are right ones and the characters they begin at."""

    id: str
    text: str
    context: str
    answers: tuple[tuple[str, int], ...]

    @property
    def right(self) -> list[str]:
        """The texts of the right answers."""
        return [text for text, _ in self.answers]


def read(path: Path, answered: bool = True) -> list[Question]:
    """The questions of a file; those on one context share its string.

    Ids need not differ: XTREME's TyDiQA has 89 ids for 3,696 questions. A question is known by its
    place, and where an id is needed by `unique_ids`.

    Args:
        answered: each must have a right answer, else what the file has

    Raises:
        UserError: not such a file, a question without an answer or with one that is not where it
            is said to be, a file of SQuAD 2.0; file, id and what is wrong are named
    """
    questions = list(_Reader(path, answered).questions())
    if not questions:
        raise UserError(f"{path} holds no question: give a file that does")
    return questions


def unique_ids(questions: list[Question]) -> list[str]:
    """The questions' ids, and for one that was there before, ``ID#2``, ``ID#3`` and so on.

    What another question is called already is passed over.
    """
    given = {question.id for question in questions}
    times: Counter[str] = Counter()
    found = []
    for question in questions:
        name = question.id
        times[name] += 1
        if times[name] > 1:
            while f"{name}#{times[name]}" in given:
                times[name] += 1
            name = f"{name}#{times[name]}"
        found.append(name)
    return found


class _Reader:
    def __init__(self, path: Path, answered: bool) -> None:
        self.path, self.answered = path, answered

    def questions(self) -> Iterator[Question]:
        content = read_json(self.path)
        for number, article in enumerate(self._list(content, "data", ""), 1):
            place = f"article {number}"
            for number_, paragraph in enumerate(self._list(article, "paragraphs", place), 1):
                within = f"{place}, paragraph {number_}"
                context = self._field(paragraph, "context", str, within)
                for asked in self._list(paragraph, "qas", within):
                    yield self._question(asked, context, within)

    def _question(self, asked: Any, context: str, within: str) -> Question:
        name = self._field(asked, "id", (str, int), within)
        place = f"question {name}"
        text = self._field(asked, "question", str, place)
        if asked.get("is_impossible"):
            self._refuse(place, "it has no answer (is_impossible), as in SQuAD 2.0", "give a 1.1")
        if not text.strip():
            self._refuse(place, "the question is empty", "correct the file")
        answers = []
        for answer in self._list(asked, "answers", place) if self._has_answers(asked) else ():
            right = self._field(answer, "text", str, place)
            start = self._field(answer, "answer_start", int, place)
            there = context[max(start, 0) :][: len(right)]
            if there != right or start < 0 or not right.strip():
                self._refuse(
                    place,
                    f"answer_start {start} has {there[:40]!r}, but the answer is {right[:40]!r}",
                    "correct the file",
                )
            answers.append((right, start))
        if self.answered and not answers:
            self._refuse(place, "it has no answer", "give a file with answers")
        return Question(str(name), text, context, tuple(answers))

    def _has_answers(self, asked: Any) -> bool:
        return self.answered or "answers" in asked

    def _list(self, of: Any, name: str, place: str) -> list[Any]:
        return self._field(of, name, list, place)

    def _field(self, of: Any, name: str, kind: Any, place: str) -> Any:
        if not isinstance(of, dict) or not isinstance(of.get(name), kind):
            what = f"{name} is {of[name]!r:.40}" if isinstance(of, dict) and name in of else None
            self._refuse(place, what or f"there is no {name}", "give one in SQuAD's format 1.1")
        return of[name]

    def _refuse(self, place: str, what: str, do: str) -> NoReturn:
        raise UserError(f"{self.path}{', ' * bool(place)}{place}: {what}: {do}")
