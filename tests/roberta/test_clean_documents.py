"""clean_documents.py: documents, repeated lines, held-out documents, sampled languages."""

import json
import sys
from itertools import pairwise

import pytest

from diet_fairseq.errors import UserError

WIKITEXT = """ = First =

 The cat @-@ like dog .

 = = Part = =

 The cat @-@ like dog .
 = Second =
 A bird .
"""


def run(script, monkeypatch, folder, *words):
    """The documents of train and valid, and the counts."""
    monkeypatch.setattr(sys, "argv", ["clean_documents.py", *map(str, [folder, *words])])
    script("clean_documents").main()
    texts = ((folder / split).read_text()[:-1].split("\n\n") for split in ("train", "valid"))
    return *texts, json.loads((folder / "counts.json").read_text())


def test_repeated_lines_are_left_out_and_a_document_held_out(script, tmp_path, monkeypatch):
    (tmp_path / "text").write_text("One\ntwo\n\n\nTWO\nthree  x\n\nONE\n\nfour\n")
    words = ["--text", "en", tmp_path / "text", "--lower"]
    train, valid, counts = run(script, monkeypatch, tmp_path / "out", *words)
    assert {*train, *valid} == {"one\ntwo", "three x", "four"}
    assert len(valid) == 1
    assert counts == {"read": 6, "repeated": 2, "kept": 4, "documents": 3, "words": 5}


def test_files_are_held_out_whole_and_their_lines_leave_the_training_text(
    script, tmp_path, monkeypatch
):
    (tmp_path / "text").write_text("one\ntwo\n\nthree\n")
    (tmp_path / "valid").write_text("two\n\nfour\n")
    words = ["--text", "en", tmp_path / "text", "--valid", tmp_path / "valid"]
    train, valid, counts = run(script, monkeypatch, tmp_path / "out", *words)
    assert (train, valid) == (["one", "three"], ["two", "four"])
    assert counts["repeated"] == 1


@pytest.mark.parametrize(
    ("held_out", "message"),
    [
        ("\n", r"valid must name files with text, but .*valid have none"),
        ("one\n\ntwo\n", "text must have lines that valid lacks"),
    ],
)
def test_held_out_files_that_leave_nothing_are_refused(
    script, tmp_path, monkeypatch, held_out, message
):
    (tmp_path / "text").write_text("one\n\ntwo\n")
    (tmp_path / "valid").write_text(held_out)
    words = ["--text", "en", tmp_path / "text", "--valid", tmp_path / "valid"]
    with pytest.raises(UserError, match=message):
        run(script, monkeypatch, tmp_path / "out", *words)


def test_text_without_empty_lines_is_cut_into_documents(script, tmp_path):
    documents = script("clean_documents").documents
    (tmp_path / "text").write_text("a\nb\nc\n")
    assert documents(tmp_path / "text", False, 2) == [["a", "b"], ["c"]]
    assert documents(tmp_path / "text", False, None) == [["a", "b", "c"]]


def test_wikitext_has_a_document_for_each_title(script, tmp_path):
    (tmp_path / "wiki").write_text(WIKITEXT)
    assert script("clean_documents").documents(tmp_path / "wiki", True, None) == [
        ["First", "The cat-like dog .", "Part", "The cat-like dog ."],
        ["Second", "A bird ."],
    ]


def test_small_languages_are_sampled_more_often(script, tmp_path, monkeypatch):
    for language, size in (("en", 90), ("sw", 10)):
        lines = (f"{language} {number}\n\n" for number in range(size))
        (tmp_path / language).write_text("".join(lines))
    words = [word for name in ("en", "sw") for word in ("--text", name, tmp_path / name)]
    train, _, counts = run(script, monkeypatch, tmp_path / "out", *words, "--smoothing", 0.5)
    assert counts["sampled"]["sw"] > 20  # a quarter instead of a tenth
    assert counts["sampled"] == {
        name: sum(text.startswith(name) for text in train) for name in ("en", "sw")
    }
    assert all(text != following for text, following in pairwise(train))
