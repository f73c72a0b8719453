"""Languages by any of their codes, and text in scripts without spaces."""

import pytest

from diet_fairseq.text.languages import bleu_tokenizer, count_words, join_sentences
from diet_fairseq.text.lines import read_lines


@pytest.mark.parametrize(
    ("languages", "tokenizer"),
    [
        ("zh ZH zh-CN zh_TW zh-Hant-HK zho zho_Hans cmn yue lzh", "zh"),
        ("ja JA ja_JP jpn jpn_Jpan", "ja-mecab"),
        ("ko ko-KR kor kor_Hang", "ko-mecab"),
        ("th tha_Thai lo km_KH khm my mya_Mymr bo bod dz", "flores200"),
        ("de en-GB deu_Latn nan_Latn vi tr tgt", "13a"),
    ],
)
def test_a_language_has_one_tokenizer_in_every_spelling(languages, tokenizer):
    assert {bleu_tokenizer(language) for language in languages.split()} == {tokenizer}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", 0),
        ("a - b, c.", 4),
        ("猫坐在垫子上，很开心。", 9 / 1.6),
        ("JAS 39C 鹰狮战斗机", 2 + 5 / 1.6),
        ("แมวนั่งบนเสื่อ", 14 / 5.4),
        ("고양이가 매트 위에", 3),
    ],
)
def test_words_are_counted_in_every_script(line, words):
    assert count_words(line) == pytest.approx(words)


@pytest.mark.parametrize("language", ["zh", "th.gz"])
def test_a_text_without_spaces_has_as_many_words_as_its_source(language, shared_data):
    folder = shared_data / "flores-dev"
    source, target = (read_lines(folder / f"flores-dev.{name}") for name in ("en", language))
    assert sum(map(count_words, target)) == pytest.approx(sum(map(count_words, source)), rel=0.2)


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (["One.", "", "Two."], "One. Two."),
        (["一。", "二。"], "一。二。"),
        (["他说（", "ABC）", "ok"], "他说（ABC）ok"),
        (["ไป", "มา"], "ไป มา"),
        (["하나.", "둘."], "하나. 둘."),
        ([], ""),
    ],
)
def test_parts_are_joined_as_the_language_writes(parts, line):
    assert join_sentences(parts) == line
