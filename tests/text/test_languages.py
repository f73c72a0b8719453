"""Languages by any of their codes, and text in scripts without spaces."""

import pytest

from diet_fairseq.text.languages import (
    _match_other_spelling,
    bleu_tokenizer,
    count_words,
    join_sentences,
    match_language,
)
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


#: languages as NLLB names them
NLLB = (
    "eng_Latn deu_Latn zho_Hans zho_Hant yue_Hant kor_Hang jpn_Jpan nob_Latn nno_Latn srp_Cyrl "
    "arb_Arab ary_Arab pes_Arab prs_Arab heb_Hebr tgl_Latn khk_Cyrl swh_Latn hrv_Latn bos_Latn"
)


@pytest.mark.parametrize(
    ("codes", "languages", "matches"),
    [
        ("de DE de-AT de_DE deu DEU_latn deu_Latn", NLLB, "deu_Latn"),
        ("zh zh-CN zh_SG zh-Hans zho", NLLB, "zho_Hans"),
        ("zh-TW zh_HK zh-Hant", NLLB, "zho_Hant"),
        ("ko ko-KR", NLLB, "kor_Hang"),
        ("ja ja_JP", NLLB, "jpn_Jpan"),
        ("no nb nb-NO", NLLB, "nob_Latn"),
        ("nn", NLLB, "nno_Latn"),
        ("ar ar-EG", NLLB, "arb_Arab"),
        ("fa", NLLB, "pes_Arab"),
        ("he iw", NLLB, "heb_Hebr"),
        ("tl fil", NLLB, "tgl_Latn"),
        ("mn", NLLB, "khk_Cyrl"),
        ("hr", NLLB, "hrv_Latn"),
        ("pt PT-br pt_BR pt-Latn", "pt_BR pt_PT", "pt_BR"),
        ("pt-PT pt-AO", "pt_BR pt_PT", "pt_PT"),
        ("de", "de_DE de deu_Latn", "de"),  # an equal code has priority
        ("de-DE", "de_DE de-DE", "de-DE"),
        ("de-de", "de_DE de", "de_DE"),
        ("de", "de_DE deu_Latn", "de_DE deu_Latn"),  # ambiguous
        ("source", "source target", "source"),
        ("Source", "source target", "source"),
        ("af gsw sr-Latn sh", NLLB, ""),  # other languages, and another script
        ("zh-TW", "zh", ""),
        ("auto en_US.UTF-8 e x-y 12 -", NLLB, ""),
    ],
)
def test_a_code_matches_the_languages_that_it_stands_for(codes, languages, matches):
    for code in codes.split():
        assert match_language(code, languages.split()) == matches.split(), code
    assert match_language("", languages.split()) == []


def test_a_long_text_is_no_code_and_is_not_kept():
    size = _match_other_spelling.cache_info().currsize
    assert match_language("de" * 100_000, ["de"]) == []
    assert _match_other_spelling.cache_info().currsize == size
