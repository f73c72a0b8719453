"""Each line of any content and length has one translation, in order."""

import math
import unicodedata

import pytest

from diet_fairseq import Translation, Translator
from diet_fairseq.errors import UserError
from diet_fairseq.text.languages import SCRIPTS, compile_letters, explain_other_script
from diet_fairseq.text.tokenizer import Tokenizer, split_sentences
from diet_fairseq.translate.translator import TooLong
from tests.support.backwards import Backwards
from tests.support.texts import ODD
from tests.support.translating import untrained, words_only


@pytest.fixture
def backwards(tmp_path, monkeypatch):
    model = Backwards()
    monkeypatch.setattr("diet_fairseq.translate.translator.load_engine", lambda *_: model)
    return model


@pytest.fixture
def translator(backwards, tmp_path):
    return Translator(words_only(tmp_path), max_tokens=30)


def test_a_text_gives_a_text_and_a_list_gives_a_list(translator):
    assert translator.translate("a b c") == "c b a"
    assert translator.translate(["a b", "", "c d"]) == ["b a", "", "d c"]
    assert translator.translate([]) == []
    assert (translator.source_lang, translator.target_lang) == ("en", "de")


@pytest.mark.parametrize("blank", ["", " ", "\u2028", "\t\r", "\x00\x1f\x85"])
def test_a_blank_line_stays_blank_and_is_not_translated(translator, backwards, blank):
    assert translator.translate(blank) == ""
    assert backwards.batches == []


def test_odd_characters_end_no_line(translator):
    text = ODD.join(("first", "last"))
    translations = translator.translate([text, "x y"])
    assert len(translations) == 2
    assert "first" in translations[0]
    assert len(translations[0].splitlines()) == 1
    assert "Cc" not in map(unicodedata.category, translations[0])
    assert translations[1] == "y x"


def test_unpaired_surrogates_are_replaced(translator):
    assert translator.translate("a \ud800 \U0001f600") == "\U0001f600 \ufffd a"


def test_batches_hold_lines_of_similar_length_within_the_limit(translator, backwards):
    lines = [" ".join("w" * n) for n in (1, 9, 2, 8, 3, 14, 1, 1)]
    assert translator.translate(lines) == lines
    sizes = [[len(line) for line in batch] for batch in backwards.batches]
    assert sizes == [[14, 9], [8, 3, 2], [1, 1, 1]]


def test_progress_counts_lines(translator):
    counts = []
    lines = ["", "a. " * 30, "b", "c"]
    translator.candidates(lines, done=counts.append)
    assert counts[0] == 1
    assert sum(counts) == 4


def test_a_long_line_is_cut_at_the_ends_of_its_sentences(translator, backwards):
    first, second, third = "one " * 12 + "end.", "two " * 5 + "end!", "three " * 9 + "end?"
    translation = translator.translate(f"{first} {second} {third}")
    backwards_of = [" ".join(part.split()[::-1]) for part in (f"{first} {second}", third)]
    assert translation == " ".join(backwards_of)


def test_no_word_of_a_sentence_that_is_too_long_is_lost(translator, backwards):
    words = [f"w{number}" for number in range(67)]
    translated = translator.translate(" ".join(words)).split()
    assert sorted(translated) == sorted(words)
    assert max(len(sentence) for batch in backwards.batches for sentence in batch) == 20


def test_strict_names_the_line_and_translates_nothing(translator, backwards):
    with pytest.raises(TooLong, match=r"^line 2 has 21 subwords, but the model's limit is 20: "):
        translator.translate(["a", "b " * 21, "c"], strict=True)
    assert backwards.batches == []


def test_the_shorter_limit_counts(backwards, tmp_path):
    folder = words_only(tmp_path, max_source_length=3)
    assert Translator(folder).max_source_length == 3
    backwards.max_source_length = 2
    assert Translator(folder).max_source_length == 2


@pytest.mark.parametrize(("limit", "used"), [(4095, 4095), (None, 1023)])
def test_a_model_of_long_inputs_keeps_its_limit(limit, used, backwards, tmp_path):
    backwards.max_source_length = limit
    assert Translator(words_only(tmp_path)).max_source_length == used


def test_candidates_are_nbest_translations_with_scores(translator):
    candidates = translator.candidates(["a b c", ""], nbest=2, beam=2)
    assert candidates == [
        [Translation("c b a", -1.0), Translation("b a", -2.0)],
        [Translation("", 0.0), Translation("", 0.0)],
    ]
    [[best]] = translator.candidates(["a " * 40])
    assert best.score == -1.0  # the mean of two parts


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nbest": 6}, "^nbest must be from 1 to the beam, 5, but is 6: widen the beam"),
        ({"nbest": 0}, "^nbest must be from 1 to the beam, 5, but is 0"),
        ({"beam": 0}, "^beam must be at least 1, but is 0$"),
    ],
)
def test_an_impossible_search_is_refused(translator, options, text):
    with pytest.raises(UserError, match=text):
        translator.candidates(["a"], **options)


def test_the_search_has_the_model_s_options_unless_others_are_given(
    backwards, tmp_path, monkeypatch
):
    searches = []
    translate = backwards.translate
    monkeypatch.setattr(
        backwards,
        "translate",
        lambda lines, search: searches.append(search) or translate(lines, search),
    )
    translator = Translator(words_only(tmp_path, beam=7, lenpen=0.6, penalty="tensor2tensor"))
    translator.translate("a")
    translator.translate("a", beam=2, lenpen=1.5)
    assert [(search.beam, search.lenpen, search.penalty) for search in searches] == [
        (7, 0.6, "tensor2tensor"), (2, 1.5, "tensor2tensor")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "no." Then (yes.) left', ['He said "no."', "Then (yes.)", "left"]),
        ("It is 3.5 km to www.example.org.", ["It is 3.5 km to www.example.org."]),
        ("猫です。犬です！「鳥。」魚", ["猫です。", "犬です！", "「鳥。」", "魚"]),
        ("", []),
    ],
)
def test_sentences_end_at_marks_before_a_space(line, expected):
    sentences = list(split_sentences(line))
    assert [sentence.strip() for sentence in sentences] == expected
    assert "".join(sentences) == line


@pytest.mark.slow
def test_a_line_as_long_as_the_model_takes_is_translated_whole(tmp_path):
    limits = ("--max-source-positions=12", "--max-target-positions=12")
    translator = Translator(untrained(tmp_path, "--arch=transformer_learned", *limits))
    assert translator.max_source_length == translator.longest == 11


def test_sentences_that_fit_into_a_line_stay_in_it():
    assert Tokenizer("none", None, "en").split("a b. c d. e f.", 4) == [
        ["a", "b.", "c", "d."],
        ["e", "f."],
    ]


def test_a_translation_that_the_search_did_not_find_has_no_score_of_a_certain_one(translator):
    engine = translator._engine
    translate = engine.translate
    engine.translate = lambda *args: [hypotheses[:1] for hypotheses in translate(*args)]
    [[best, missing]] = translator.candidates(["a b c"], nbest=2, beam=2)
    assert best.score == -1.0
    assert missing == Translation("", -math.inf)


HAN = ["一个男人骑着马走过田野。", "狗在跑，猫在睡觉，孩子们在花园里玩。"]
LATIN = ["a man rides a horse across a field"]


@pytest.mark.parametrize(
    ("source", "target", "lines", "text"),
    [
        ("en", "zh", HAN, "100% of its letters are in the script of zh"),
        ("eng_Latn", "deu_Latn", HAN, "0% of its letters are in the script of eng_Latn"),
        ("zh_CN", "en_XX", LATIN, "0% of its letters are in the script of zh_CN"),
        ("srp_Cyrl", "eng_Latn", LATIN, "0% of its letters are in the script of srp_Cyrl"),
    ],
)
def test_languages_swapped_by_mistake_are_logged_once(
    backwards, tmp_path, caplog, source, target, lines, text
):
    for name in (f"dict.{source}.txt", f"dict.{target}.txt"):
        (tmp_path / name).touch()
    translator = Translator(words_only(tmp_path), source_lang=source, target_lang=target)
    assert translator.translate(lines) != translator.translate(lines * 2)
    assert [record.getMessage() for record in caplog.records] == [
        f"the text does not look like {source}, the source language: {text}; check the direction "
        f"{source} to {target}"
    ]


@pytest.mark.parametrize(
    ("source", "target", "lines"),
    [
        ("en", "de", LATIN),
        ("en", "de", HAN),  # of English's script nothing is known
        ("en", "zh", LATIN),
        ("zh", "en", HAN),
        ("ja", "zh", HAN),  # may be kanji
        ("zh", "en", ["GPU 3000"]),
        ("zh", "en", [*HAN, "PyTorch, CTranslate2, transformers and fairseq"]),
        ("sr", "en", LATIN),
        ("eng_Xyzq", "zh_Hant", LATIN),
    ],
)
def test_a_text_that_may_be_in_the_source_language_is_not_logged(source, target, lines):
    assert explain_other_script(lines, source, target) is None


def test_scripts_of_all_languages_are_known_to_regex():
    for names in (*SCRIPTS.values(), "eng_Latn", "zho_Hans", "jpn_Jpan", "kor_Kore"):
        assert all(compile_letters(name) is not None for name in names.split())
    assert compile_letters("hin_Deva").fullmatch("क")
    assert compile_letters("ja").fullmatch("の")
