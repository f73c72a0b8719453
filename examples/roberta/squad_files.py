"""Files in SQuAD's format 1.1, which XQuAD, MLQA and TyDiQA-GoldP have, too.

{"data": [{"paragraphs": [{"context": "...", "qas": [
    {"id": "...", "question": "...", "answers": [{"text": "...", "answer_start": 12}]}]}]}]}
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from diet_fairseq.errors import UserError
from diet_fairseq.files import read_json

#: bytes that a file may have, unpacked; XTREME's largest has 60 million
LARGEST = 1 << 28
#: id, question, context, and answers: {"text": [...], "answer_start": [...]}
Question = dict[str, Any]


def read_squad(path: Path, answered: bool = True, language: str = "") -> list[Question]:
    """The questions of a file, gzipped or not.

    Args:
        answered: whether every question must have an answer
        language: the language to select, such as "english", of a file that has several: ids
            begin with it in TyDiQA-GoldP's training set (XTREME's utils_preprocess.py)

    Raises:
        UserError: not such a file, SQuAD 2.0, more than `LARGEST` bytes, or an answer that is not
            where the file says
    """
    # `datasets.load_dataset("json")` unpacks a file of any size, and its errors name no file.
    try:
        questions = list(_questions(path, read_json(path, LARGEST), answered))
        if language:
            questions = [
                question for question in questions if question["id"].split("-")[0] == language
            ]
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is not in SQuAD's format 1.1 ({error!r}): give one with data, paragraphs, "
            "context and qas"
        ) from error
    if not questions:
        selection = f" whose id begins with {language}-" if language else ""
        raise UserError(f"{path} holds no question{selection}: give a file that does")
    return questions


def _questions(path: Path, content: Any, answered: bool) -> Iterator[Question]:
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                place = f"{path}, question {entry['id']}"
                if entry.get("is_impossible"):
                    raise UserError(f"{place} has no answer, as in SQuAD 2.0: give a file of 1.1")
                answers = entry["answers"] if answered else entry.get("answers", [])
                if answered and not answers:
                    raise UserError(f"{place} has no answer: give a file with answers")
                context = paragraph["context"]
                for answer in answers:
                    start, text = answer["answer_start"], answer["text"]
                    there = context[start : start + len(text)] if start >= 0 else ""
                    if there != text or not text.strip():
                        raise UserError(
                            f"{place}: answer_start {start} has {there[:40]!r}, but the answer is "
                            f"{text[:40]!r}: correct the file"
                        )
                yield {
                    "id": str(entry["id"]),
                    "question": entry["question"],
                    "context": context,
                    "answers": {
                        "text": [answer["text"] for answer in answers],
                        "answer_start": [answer["answer_start"] for answer in answers],
                    },
                }


def unique_ids(questions: Sequence[Question]) -> list[str]:
    """The ids; one that occurred before is ``ID#2``, ``ID#3`` and so on.

    XTREME's TyDiQA has 89 ids for 3,696 questions.
    """
    times: Counter[str] = Counter()
    ids = []
    for question in questions:
        times[question["id"]] += 1
        number = times[question["id"]]
        ids.append(question["id"] if number == 1 else f"{question['id']}#{number}")
    return ids


def right_answers(questions: Sequence[Question]) -> dict[str, list[str]]:
    """Id -> the right answers."""
    texts = (question["answers"]["text"] for question in questions)
    return dict(zip(unique_ids(questions), texts, strict=True))
