"""Files in SQuAD's format: what is read, and what is refused."""

import json
from functools import partial

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders import squad, trivial


def file_of(path, *asked, context="Ada has a red ball."):
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": asked}]}]}))
    return path


def ask(name="q1", text="red", start=10, **more):
    answers = [{"text": text, "answer_start": start}]
    return {"id": name, "question": "Which?", "answers": answers, **more}


def test_a_question_has_its_context_and_its_answers(tmp_path):
    [found] = squad.read(file_of(tmp_path / "a.json", ask()))
    assert found == squad.Question("q1", "Which?", "Ada has a red ball.", (("red", 10),))


def test_ids_that_repeat_are_told_apart(tmp_path):
    found = squad.read(file_of(tmp_path / "a.json", ask("0"), ask("0"), ask("1"), ask("0")))
    assert squad.unique_ids(found) == ["0", "0#2", "1", "0#3"]


def test_an_id_that_is_told_apart_is_no_other_question_s(tmp_path):
    found = squad.read(file_of(tmp_path / "a.json", *map(ask, ("x", "x", "x#2", "x"))))
    assert squad.unique_ids(found) == ["x", "x#3", "x#2", "x#4"]


def test_the_published_files_are_read_whole(shared_data):
    folder = shared_data / "xtreme"
    found = squad.read(folder / "tydiqa_goldp/tydiqa.goldp.sw.train.json.gz")
    assert len(found) == len(set(squad.unique_ids(found))) == 2755
    assert len({question.id for question in found}) == 74
    assert len(squad.read(folder / "xquad/xquad.zh.json.gz")) == 1190
    assert len(squad.read(folder / "mlqa/dev-context-de-question-en.json.gz")) == 512


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (ask(start=9), "question q1: answer_start 9 has ' re', but the answer is 'red': correct "
         "the file"),
        (ask(start=-9), "question q1: answer_start -9 has 'Ada', but the answer is 'red': correct "
         "the file"),
        (ask(is_impossible=True), "question q1: it has no answer (is_impossible), as in SQuAD 2.0: "
         "give a 1.1"),
        (ask() | {"answers": []}, "question q1: it has no answer: give a file with answers"),
        ({"id": "q1", "question": "Which?"}, "question q1: there is no answers: give one in "
         "SQuAD's format 1.1"),
        ({"question": "Which?"}, "article 1, paragraph 1: there is no id: give one in SQuAD's "
         "format 1.1"),
        (ask() | {"question": 3}, "question q1: question is 3: give one in SQuAD's format 1.1"),
        (ask() | {"question": " "}, "question q1: the question is empty: correct the file"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_question_is_said_with_its_id(tmp_path, asked, message):
    path = file_of(tmp_path / "a.json", asked)
    with pytest.raises(UserError) as error:
        squad.read(path)
    assert str(error.value) == f"{path}, {message}"


def test_questions_without_answers_can_be_read_where_none_are_needed(tmp_path):
    path = file_of(tmp_path / "a.json", {"id": "q1", "question": "Which?"}, ask("q2"))
    assert [len(one.answers) for one in squad.read(path, answered=False)] == [0, 1]


def cut(path):
    file_of(path, ask())
    path.write_text(path.read_text()[:40])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (cut, ", line 1: this is not JSON, or it is cut (Unterminated string "
         "starting at): fetch the file again"),
        (partial(file_of), " holds no question: give a file that does"),
        (lambda path: path.write_text("[1]"), ": there is no data: give one in SQuAD's format 1.1"),
        (lambda path: path.write_bytes(b'{"\xff": 1}'), ": byte 3 is not UTF-8: fetch it again"),
        (lambda path: None, " can't be read: No such file or directory"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_questions_is_refused(tmp_path, make, message):
    path = tmp_path / "a.json"
    make(path)
    with pytest.raises(UserError) as error:
        squad.read(path)
    assert str(error.value) == f"{path}{message}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ada\u2019s 3 red-blue balls", ["Ada", "s", "3", "red", "blue", "balls"]),
        ("\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e", None),  # Hindi
        ("\u09ac\u09be\u0982\u09b2\u09be \u09ad\u09be\u09b7\u09be", None),  # Bengali
        ("\u0c24\u0c46\u0c32\u0c41\u0c17\u0c41 \u0c2d\u0c3e\u0c37", None),  # Telugu
        ("\u0645\u0624\u0645\u0651\u0646 \u0623\u064a\u0636\u0627\u064b", None),  # Arabic
        ("\u0e20\u0e32\u0e29\u0e32", list("\u0e20\u0e32\u0e29\u0e32")),  # Thai
    ],
)
def test_words_keep_their_vowel_signs(text, words):
    assert trivial.WORD.findall(text) == (words or text.split())
