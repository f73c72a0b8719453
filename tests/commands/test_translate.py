"""`diet-fairseq translate`: a line out for each line in, also if it is interrupted."""

import io
import json
import math
import os
import subprocess
import sys
from argparse import ArgumentParser

import pytest

from diet_fairseq.cli import main
from diet_fairseq.commands import translate
from diet_fairseq.errors import UserError
from diet_fairseq.text import lines
from diet_fairseq.translate.translator import Translation, Translator
from tests.commands.test_cli import ROOT
from tests.support.backwards import Backwards
from tests.support.translating import words_only

TEXT = "one two\n\n a\u2028b\x85c \r\nlast"


#: the command with a model that reverses sentences
PROGRAM = """
import sys
from diet_fairseq.translate import translator
from tests.support.backwards import Backwards
from diet_fairseq.cli import main

translator.load_engine = lambda *_: Backwards()
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A folder with a model that reverses sentences of at most 20 words."""
    monkeypatch.setattr("diet_fairseq.translate.translator.load_engine", lambda *_: Backwards())
    return words_only(tmp_path)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text(TEXT, encoding="utf-8", newline="")
    return path


def run(*words):
    return main(["translate", *map(str, words)])


def test_a_file_s_lines_come_out_in_order(model, text, capsys):
    assert run(model, text) == 0
    assert capsys.readouterr().out == "two one\n\nc b a\nlast\n"


def test_models_and_the_text_are_distinguished(model, text, tmp_path):
    checkpoint = tmp_path / "checkpoint_last.pt"
    assert translate.separate_file([model]) == ([model], None)
    assert translate.separate_file([model, checkpoint]) == ([model, checkpoint], None)
    assert translate.separate_file([model, checkpoint, text]) == ([model, checkpoint], text)
    for name in ("pipe", "pipe.pt"):
        pipe = tmp_path / name
        os.mkfifo(pipe)  # to open it would take its text
        assert translate.separate_file([model, pipe]) == ([model], pipe)


@pytest.mark.parametrize(
    ("content", "is_text"),
    [
        (b"O homem anda a cavalo.\n", True),
        ("\ufeffA\n".encode("utf-16"), True),
        (b"PK\x03\x04, cut off", False),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", False),  # torch.save before PyTorch 1.6
    ],
)
@pytest.mark.parametrize("name", ["test.pt", "test.en", "checkpoint"])
def test_the_content_of_a_file_says_whether_it_is_a_checkpoint(
    model, tmp_path, name, content, is_text
):
    path = tmp_path / name
    path.write_bytes(content)
    expected = ([model], path) if is_text else ([model, path], None)
    assert translate.separate_file([model, path]) == expected


@pytest.mark.parametrize("exists", [True, False])
def test_the_name_says_whether_an_empty_or_missing_file_is_a_checkpoint(model, tmp_path, exists):
    for name, is_text in (("empty.pt", False), ("empty.en", True)):
        path = tmp_path / name
        if exists:
            path.touch()
        expected = ([model], path) if is_text else ([model, path], None)
        assert translate.separate_file([model, path]) == expected


def test_a_portuguese_text_is_translated(model, tmp_path, capsys):
    (tmp_path / "test.pt").write_text("um dois\n")
    assert run(model, tmp_path / "test.pt") == 0
    assert capsys.readouterr().out == "dois um\n"


def test_an_ensemble_is_named(monkeypatch, capsys):
    monkeypatch.setattr("diet_fairseq.translate.translator.Translator", lambda *_, **__: None)
    parser = ArgumentParser()
    translate.add_arguments(parser)
    translate.load_translator(parser.parse_args(["runs/a"]))
    assert capsys.readouterr().err == ""
    translate.load_translator(parser.parse_args(["runs/a", "runs/b"]))
    assert capsys.readouterr().err == "ensemble of 2 models: runs/a runs/b\n"


def test_a_text_in_the_target_s_script_is_a_warning(model, tmp_path, capsys):
    (tmp_path / "dict.zh.txt").touch()
    text = tmp_path / "text"
    text.write_text("狗在跑，猫在睡觉，孩子们在花园里玩，一个男人骑着马。\n", encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, "translate", model, text, "--target-lang=zh"]
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "WARNING:diet_fairseq.translate.translator:the text does not look like en, the source "
        "language: 0% of its letters are in the script of en; check the direction en to zh\n"
    )


def test_standard_input_is_translated(model, monkeypatch, capsys, text):
    with open(text, "rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        assert run(model) == 0
    assert capsys.readouterr().out.count("\n") == 4


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "dog. A cat. Not\nleft Roth Dr.\n"),
        (["--split-sentences=yes"], "dog. A cat. Not\nleft Roth Dr.\n"),
        (["--split-sentences=no"], "cat. Not dog. A\nleft Roth Dr.\n"),
    ],
)
def test_a_line_is_translated_sentence_by_sentence(model, tmp_path, capsys, options, expected):
    (tmp_path / "text").write_text("A dog. Not cat.\nDr. Roth left\n")
    assert run(model, tmp_path / "text", *options) == 0
    assert capsys.readouterr().out == expected


def test_nbest_joins_the_translations_of_one_rank(model, tmp_path, capsys):
    (tmp_path / "text").write_text("A dog. Two cats.\n")
    assert run(model, tmp_path / "text", "--nbest", 2) == 0
    assert capsys.readouterr().out == "dog. A cats. Two\nA Two\n"


def test_nbest_is_the_number_of_translations_of_each_line(model, text, capsys):
    run(model, text, "--nbest", 2, "--beam", 3)
    assert capsys.readouterr().out == "two one\none\n\n\nc b a\nb a\nlast\n\n"


def test_scores_come_as_json_one_line_for_each(model, text, capsys):
    run(model, text, "--scores")
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert results[0] == {"line": 1, "translations": [{"text": "two one", "score": -1.0}]}
    assert [result["line"] for result in results] == [1, 2, 3, 4]


def test_a_line_that_is_not_utf8_stops_it_after_those_before_it(model, tmp_path, capsys):
    path = tmp_path / "bytes"
    path.write_bytes(b"a b\n\xff\nc\n")
    with pytest.raises(UserError, match=r"bytes, line 2: byte 1 .* is not UTF-8"):
        run(model, path)
    assert capsys.readouterr().out == "b a\n"


def test_a_line_of_100_000_words_is_refused_in_one_line(model, tmp_path, capsys):
    path = tmp_path / "long"
    path.write_text("a b\n" + "word " * 100_000 + "\nlast\n")
    with pytest.raises(UserError, match=r"long, line 2 has more than 20,000 characters: split it"):
        run(model, path)
    assert capsys.readouterr().out == "b a\n"
    path.write_text("word " * 30_000)
    assert run(model, path, "--max-characters", 150_000) == 0


def test_a_file_may_come_after_the_options(model, text, capsys):
    assert run(model, "--beam", 2, text) == 0
    assert run(model, text, "--beam", 2) == 0
    assert run("--beam", 2, model, text) == 0
    assert capsys.readouterr().out == 3 * "two one\n\nc b a\nlast\n"


def test_a_missing_text_is_named(model, tmp_path):
    with pytest.raises(UserError, match="nosuch can't be read: No such file or directory"):
        run(model, tmp_path / "nosuch")


def test_each_window_is_written_before_the_next_is_translated(model, tmp_path, monkeypatch, capsys):
    path = tmp_path / "many"
    path.write_text("a b\n" * 5)
    seen = []
    candidates = Translator.candidates

    def watched(self, sentences, **options):
        seen.append((len(sentences), capsys.readouterr().out.count("\n")))
        return candidates(self, sentences, **options)

    monkeypatch.setattr(Translator, "candidates", watched)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 8)
    run(model, path)
    assert seen == [(2, 0), (2, 2), (1, 2)]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_for_terminals(model, text, monkeypatch, capsys, is_terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    run(model, text)
    assert ("translating: 4 lines" in capsys.readouterr().err) == is_terminal


def test_ctrl_c_reports_the_number_of_written_lines(model, text, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "candidates", interrupted)
    with pytest.raises(SystemExit, match="130"):
        run(model, text)
    assert capsys.readouterr().err == "interrupted: 0 lines were translated and written\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--nbest", 0), "error: argument --nbest: must be at least 1, but is 0"),
        (("--threads", 0), "error: argument --threads: must be from 1 to 1024, but is 0"),
        (("--beam", -1), "error: argument --beam: must be at least 1, but is -1"),
        (
            ("--length-penalty", "nan"),
            "error: argument --length-penalty: must be a finite number, but is nan",
        ),
        (
            ("--length-penalty", "inf"),
            "error: argument --length-penalty: must be a finite number, but is inf",
        ),
        (
            ("--length-penalty=-inf",),
            "error: argument --length-penalty: must be a finite number, but is -inf",
        ),
    ],
)
def test_a_wrong_number_is_named(model, text, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(model, *words)
    assert capsys.readouterr().err.startswith(text)


def test_a_missing_translation_has_no_score_in_json():
    translations = [Translation("two one", -1.0), Translation("", -math.inf)]
    line = json.loads(translate._render(translations, 1, True))
    assert [item["score"] for item in line["translations"]] == [-1.0, None]


def test_unknown_words_are_forbidden_on_demand(model, text, monkeypatch):
    searches = []
    translate = Backwards.translate
    monkeypatch.setattr(
        Backwards,
        "translate",
        lambda self, sentences, search: (
            searches.append(search.no_unk) or translate(self, sentences, search)
        ),
    )
    for words, no_unk in ((["--no-unk"], True), ([], False)):
        searches.clear()
        run(model, text, *words)
        assert set(searches) == {no_unk}
