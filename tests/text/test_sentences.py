"""The sentences of a line in many languages; joined, they are the line."""

import gzip
import logging
import os
import random
from pathlib import Path

import pytest
import sentencex

from diet_fairseq.text import sentences
from diet_fairseq.text.languages import join_sentences
from diet_fairseq.text.sentences import split_sentences
from diet_fairseq.text.whitespace import normalise
from tests.support.texts import ODD


def strip(line, language):
    parts = split_sentences(line, language)
    assert "".join(parts) == line
    return [part.strip(" ") for part in parts]


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["She has a dog.", "Please wait for me.", "Tom asked Mary for help."]),
        ("en", ["One.", "Two!", "Three?", "Four"]),
        ("en", ["Dr. Smith paid 3.5 dollars, e.g. for tea!", '"Stop," he said.', "Yes."]),
        ("en", ["See No. 5 at www.example.org.", "He said no.", "I saw it in May.", "It ran."]),
        ("en", ["It was built by the U.S. Army.", "It closed in Sept. 1990."]),
        ("en", ["The factory closed.", "300 people lost their work."]),
        ("de", ["Er kam am 3. Mai an, bzw. Frau Roth kam.", "Er ging."]),
        ("deu_Latn", ["Er kam am 3. Mai an, bzw. Frau Roth kam.", "Er ging."]),
        ("DE", ["Er mag mich.", "Er kam z. B. am 3. Mai."]),
        ("de_AT", ["Dies gilt z. B. für Dr. Roth.", "Das hier nicht."]),
        ("ger", ["Sie wohnt in Irland.", "250 Jahre vergingen."]),
        ("es", ["Los animales no.", "Los sistemas de EE. UU. funcionan."]),
        ("ru", ["Он жил в г. Москве.", "Она уехала."]),
        ("el", ["Πού είναι;", "Ήρθε χθες."]),
        ("ar", ["أين الكتاب؟", "ذهب إلى البيت."]),
        ("hi", ["वह घर गया।", "वह सो गया।"]),
        ("npi", ["ऊ घर गयो।", "ऊ सुत्यो।"]),
        ("th", ["สวัสดีครับ ผมชื่อทอม ยินดีที่ได้รู้จัก"]),  # without marks
        ("xx", ["One.", "Two!"]),
        ("source", ["One.", "Two!"]),
        ("en", []),
    ],
)
def test_abbreviations_and_numbers_end_no_sentence(language, expected):
    assert strip(" ".join(expected), language) == expected


@pytest.mark.parametrize("language", ["zh", "cmn_Hans", "zho_Hant", "ja", "jpn"])
def test_chinese_and_japanese_sentences_need_no_spaces(language):
    expected = ["猫です。", "犬です！", "鳥ですか？"]
    assert strip("".join(expected), language) == expected
    assert strip("他说：“猫。狗。”然后走了。", language) == ["他说：“猫。狗。”", "然后走了。"]
    years = ["爱丽丝在这座城市里住了很多年并且喜欢它。", "1992 年她离开了这里并且再也没有回来过。"]
    assert strip("".join(years), "zh") == years


def test_only_long_sentences_of_a_quotation_are_cut():
    short = 'He said, "This is serious. We must act." Then he left.'
    assert strip(short, "en") == ['He said, "This is serious. We must act."', "Then he left."]
    first = '"I saw a terrible scene, as people tried to break windows in order to get out.'
    second = 'They were hitting the panes with chairs, but the windows were unbreakable," he said.'
    assert strip(f"{first} {second}", "en") == [first, second]


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("en", "A dog.\u00a0A cat.\u3000 No. 5.\u2028 It was he. "),
        ("en", ODD.join(("A dog. It ran.", "A cat."))),
        ("en", "\n" * 50 + "A. B"),
        ("de", "a\u200e. B \u200f. \ufeff"),
    ],
)
def test_any_white_space_is_kept(language, line):
    assert "".join(split_sentences(line, language)) == line


def test_a_line_that_the_library_fails_on_stays_whole(caplog, monkeypatch):
    sentences._warn_once.cache_clear()
    lines = ["A dog. \ud800 A cat.", "A man. \udfff A horse."]  # sentencex refuses surrogates
    assert [split_sentences(line, "en") for line in lines] == [[line] for line in lines]

    def panic(language, text):
        raise type("PanicException", (BaseException,), {})("end byte index 2 is not a boundary")

    for fault in (panic, lambda language, text: text.split(". ")):
        monkeypatch.setattr(sentencex, "segment", fault)
        assert split_sentences("A dog. A cat.", "en") == ["A dog. A cat."]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "sentencex could not split a line, which is translated whole")
    ]


def test_ctrl_c_is_not_a_failure_of_the_library(monkeypatch):
    def interrupt(language, text):
        raise KeyboardInterrupt

    monkeypatch.setattr(sentencex, "segment", interrupt)
    with pytest.raises(KeyboardInterrupt):
        split_sentences("A dog. A cat.", "en")


@pytest.mark.parametrize(
    "line",
    ["a" * 20_000, "。" * 20_000, "A. " * 6_666, "(" * 20_000, '."' * 10_000, "！？" * 10_000,
     '"' * 20_000 + " A", "No. 5 " * 3_000, ("." * 100 + " A") * 200],
)  # fmt: skip
def test_the_time_is_linear_in_the_length(line):
    """A quadratic rule takes minutes for such lines."""
    start = os.times().user
    assert "".join(split_sentences(line, "en")) == line
    assert os.times().user - start < 2


@pytest.mark.slow
def test_random_lines_are_never_lost():
    draw = random.Random(1)
    words = ["A", "dog", "me", "No", "3", "Dr", "Mai", "z", "猫", "です", "वह", "أين", "x" * 70]
    marks = [*".!?…。！？।؟;:,\"'“”„«»()「」\u00a0\u2028\u200e\u3000 \t\n", "", " ", ". ", '." ']
    for _ in range(20_000):
        parts = (draw.choice(words) + draw.choice(marks) for _ in range(draw.randint(1, 40)))
        line = "".join(parts)
        language = draw.choice(["en", "de", "es", "zh", "ja", "hi", "ar", "th", "fi", "xx"])
        assert "".join(split_sentences(line, language)) == line


FLORES = Path(__file__).parents[3] / "shared/data/flores-dev"


@pytest.mark.slow
@pytest.mark.skipif(not FLORES.is_dir(), reason="needs FLORES' dev set in ../shared")
@pytest.mark.parametrize(
    ("language", "least_recall", "least_precision"),
    [
        ("en", 0.984, 0.880), ("de", 0.974, 0.815), ("es", 0.992, 0.875), ("fr", 0.984, 0.848),
        ("ru", 0.992, 0.847), ("zh", 0.984, 0.842), ("hi", 0.962, 0.823), ("ar", 0.988, 0.896),
        ("el", 0.992, 0.872), ("fi", 0.981, 0.817),
    ],
)  # fmt: skip
def test_paragraphs_of_flores_are_split_where_they_were_joined(
    language, least_recall, least_precision
):
    """The precision counts the ends of sentences within FLORES' lines as wrong."""
    file = next(FLORES.glob(f"flores-dev.{language}*"))
    text = (
        gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    ).decode()
    lines = [normalise(line) for line in text.split("\n") if line.strip()]
    right = joined = cuts = 0
    for start in range(0, len(lines), 5):
        group = lines[start : start + 5]
        expected = {len(join_sentences(group[:number])) for number in range(1, len(group))}
        parts = split_sentences(join_sentences(group), language)
        ends = {len("".join(parts[:number]).rstrip(" ")) for number in range(1, len(parts))}
        right, joined, cuts = (
            right + len(ends & expected), joined + len(expected), cuts + len(ends)
        )  # fmt: skip
    assert right / joined > least_recall
    assert right / cuts > least_precision
