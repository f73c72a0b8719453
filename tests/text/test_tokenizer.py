"""Tokenizers of both kinds of subwords keep lines and text."""

import re

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.text.subwords import SUBWORD_FILES, check_vocabulary
from diet_fairseq.text.tokenizer import Tokenizer
from diet_fairseq.text.whitespace import normalise
from tests.support.texts import ODD, learn_subwords, sentences

LINES = sentences(400) + [normalise(f"über {odd} Länge, naïve 世界 😀 Müller.") for odd in ODD]


@pytest.fixture(scope="module", params=["sentencepiece", "subword_nmt", "subword_nmt, Moses"])
def tokenizer(request, tmp_path_factory):
    kind, _, moses = request.param.partition(", ")
    path = tmp_path_factory.mktemp("subwords") / SUBWORD_FILES[kind]
    return Tokenizer(kind, learn_subwords(path, kind, LINES * 2, 200), "de", bool(moses))


def test_decoding_returns_the_text(tokenizer):
    for line in LINES:
        assert tokenizer.decode(tokenizer.encode(line)) == normalise(
            line.replace("\u2581", " ")
        ) or any(odd in line for odd in "\u200b\u2060\ufeff|@<\u2581")


def test_every_line_has_one_line_of_tokens(tokenizer):
    lines = ["", "a", " \u2028", *LINES, "x" * 100_000, "\x85"]
    coded = [tokenizer.encode(line) for line in lines]
    assert all(len(" ".join(tokens).splitlines()) <= 1 for tokens in coded)
    assert [not tokens for tokens in coded] == [not normalise(line) for line in lines]
    assert tokenizer.decode(coded[-2]) == "x" * 100_000
    assert tokenizer.decode([]) == ""


def test_marks_in_a_text_are_unknown_words():
    assert Tokenizer("none", None, "en").encode("a <s> <unk> b") == ["a", "<unk>", "<unk>", "b"]


def test_lower_casing_comes_first():
    assert Tokenizer("none", None, "en", lower=True).encode("A b") == ["a", "b"]


def test_moses_splits_words_by_the_rules_of_the_language():
    assert Tokenizer("none", None, "fr", True).encode("L'homme") == ["L&apos;", "homme"]
    assert Tokenizer("none", None, "en", True).encode("L'homme") == ["L", "&apos;homme"]


def test_words_stay_whole_where_a_long_line_is_split(tokenizer):
    words = sentences(1, seed=3)[0].rstrip(".").split() * 5
    longest = max(len(tokenizer.encode(word)) for word in words) + 1
    parts = tokenizer.split(" ".join(words), longest)
    assert max(map(len, parts)) <= longest
    assert " ".join(map(tokenizer.decode, parts)).split() == words
    letters = tokenizer.split("x" * 50, 4)
    assert "".join(map(tokenizer.decode, letters)).replace(" ", "").replace("@@", "") == "x" * 50


def test_a_vocabulary_of_another_subword_model_is_refused(tokenizer):
    tokens = {token for line in LINES[:200] for token in tokenizer.encode(line)}
    check_vocabulary([tokenizer.subwords], [*tokens, "<unk>", "madeupword0000", "漢"], "these")
    foreign = [token.strip("▁@") + "qq" for token in tokens]
    with pytest.raises(UserError, match=r"^these don't belong together: \d+ of \d+ subwords of "):
        check_vocabulary([tokenizer.subwords], foreign, "these")


@pytest.mark.parametrize("kind", SUBWORD_FILES)
def test_a_damaged_subword_model_is_named(tmp_path, kind, capsys):
    path = tmp_path / SUBWORD_FILES[kind]
    path.write_bytes(b"\xff\xfe nonsense")
    path.with_name("encoder.json").write_text("{}")
    with pytest.raises(UserError, match=re.escape(str(path)) + ".* (is not|does not|are not) "):
        Tokenizer(kind, path, "en")
    assert capsys.readouterr().err == ""
