"""Texts become documents, without repeated lines, and no line is too long."""

import pytest

from diet_fairseq.recipes.encoders import documents
from tests.support.road import ODD, sentences, subwords, write


def lines_of(path, **options):
    return list(documents.Source(path, **options).lines())


# Documents


@pytest.mark.parametrize(
    "lines",
    [
        ["a", "b", "", "c"],
        ["", "", "a", "b", "", "", "", "c", "", ""],
        ["a", "b", " \t\u3000", "c"],
        ["a\r", "b\r", "\r", "c\r"],
    ],
)
def test_blank_lines_of_any_kind_and_number_part_documents(tmp_path, lines):
    assert lines_of(write(tmp_path / "text", lines)) == ["a", "b", "", "c"]


def test_only_a_newline_ends_a_line(tmp_path):
    [line] = lines_of(write(tmp_path / "text", [f"a {ODD} b"]))
    assert len(line.splitlines()) == 1


def test_a_text_without_blank_lines_is_cut(tmp_path):
    path = write(tmp_path / "text", [*"abcde", "", ""])
    assert lines_of(path, lines_per_document=2) == ["a", "b", "", "c", "d", "", "e"]
    assert lines_of(path, lines_per_document=5) == [*"abcde"]


def test_a_text_with_blank_lines_is_not_cut(tmp_path):
    path = write(tmp_path / "text", [*"abc", "", "d"])
    assert lines_of(path, lines_per_document=2) == ["a", "b", "c", "", "d"]


def test_wikitext_is_parted_by_titles(tmp_path):
    lines = [
        *(" ", " = A Town = ", " ", " It is well @-@ known , 1 @,@ 000 years . ", " More . ", " "),
        *(" = = History = = ", " ", " = = = Before 1 = = = ", " a = b ", " ", " = B = 1 = ", " x "),
    ]
    assert lines_of(write(tmp_path / "text", lines), wikitext=True) == [
        *("A Town", "It is well-known , 1,000 years .", "More .", "History", "Before 1", "a = b"),
        *("", "B = 1", "x"),
    ]


def test_repeated_lines_go_and_so_do_documents_that_lose_all(tmp_path):
    cleaner = documents.Cleaner()
    found = list(cleaner([["a b", "c", "", "a b"], ["c", "", "d", "a b", "e", "", "d", "f"]]))
    assert found == ["a b", "c", "", "d", "e", "", "f"]
    assert cleaner.counts == {"read": 9, "repeated": 4, "kept": 5, "documents": 3, "words": 6}


def test_lower_case_makes_lines_repeated():
    assert list(documents.Cleaner(lower=True)([["Übung", "übung", "X"]])) == ["übung", "x"]


@pytest.mark.parametrize(
    ("number", "share", "chosen"), [(2, 0.005, 1), (1000, 0.005, 5), (3, 0.99, 2), (100, 0.1, 10)]
)
def test_a_share_of_the_documents_is_held_out(number, share, chosen):
    found = documents.held_out(number, share)
    assert len(found) == chosen
    assert found <= set(range(number))
    assert found == documents.held_out(number, share)


# Lines that are too long


def test_a_short_line_is_not_parted():
    assert list(documents.parted("", 3)) == [""]
    assert list(documents.parted("▁a b ▁c", 3)) == ["▁a b ▁c"]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("▁a ▁b . ▁c ▁d", ["▁a ▁b .", "▁c ▁d"]),  # after a sentence
        ("▁a ▁b . 5 ▁c ▁d", ["▁a ▁b . 5", "▁c ▁d"]),  # 3.5 is none
        ("▁a . ▁b ▁c ▁d e", ["▁a . ▁b ▁c", "▁d e"]),  # not in the first half
        ("▁a ▁b ▁c ▁d e", ["▁a ▁b ▁c", "▁d e"]),  # after a word
        ("▁a ▁b c d e ▁f", ["▁a ▁b c d", "e ▁f"]),  # not in the first half
        ("▁a b c d e f g", ["▁a b c d", "e f g"]),  # in a word that leaves no other way
        ("a。 b 。 c d", ["a。 b 。", "c d"]),  # no spaces
        ("a@@ b , c@@ d e", ["a@@ b ,", "c@@ d e"]),  # subword-nmt
        ('▁a ▁b ." ▁c ▁d', ['▁a ▁b ."', "▁c ▁d"]),
    ],
)
def test_a_long_line_is_parted_where_it_hurts_least(line, parts):
    assert list(documents.parted(line, 4)) == parts


@pytest.mark.parametrize("kind", subwords.KINDS)
def test_no_part_is_too_long_and_nothing_is_lost(tmp_path, kind):
    lines = [" ".join(sentences(60, seed=number)) for number in range(5)]
    subwords.KINDS[kind].learn(tmp_path, {"en": lines}, 160, 1)
    for line in subwords.KINDS[kind](tmp_path).encode(lines, "en", 1):
        parts = list(documents.parted(line, 20))
        assert " ".join(parts) == line
        assert max(len(part.split(" ")) for part in parts) <= 20
        assert all(part.endswith(".") for part in parts[:-1])
