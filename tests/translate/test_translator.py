"""Each line of any content and length has one translation, in order."""

import math
import unicodedata
from dataclasses import replace

import pytest

from diet_fairseq import Translation, Translator
from diet_fairseq.errors import UserError
from diet_fairseq.text.languages import compile_letters, explain_other_script
from diet_fairseq.text.tokenizer import Tokenizer
from diet_fairseq.translate.translator import Sentence, TooLong
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


LONG = "One " * 12 + "end. " + "Two " * 5 + "end! " + "Three " * 9 + "end?"


def reverse(*sentences):
    return " ".join(" ".join(sentence.split()[::-1]) for sentence in sentences)


def test_a_line_is_translated_sentence_by_sentence(translator, backwards):
    first, second, third = ("One " * 12 + "end.", "Two " * 5 + "end!", "Three " * 9 + "end?")
    assert translator.translate(LONG) == reverse(first, second, third)
    assert sorted(len(part) for batch in backwards.batches for part in batch) == [6, 10, 13]


def test_without_a_split_a_long_line_has_parts_of_whole_sentences(translator):
    first, second, third = ("One " * 12 + "end.", "Two " * 5 + "end!", "Three " * 9 + "end?")
    expected = reverse(f"{first} {second}", third)
    assert translator.translate(LONG, split_sentences=False) == expected


def test_the_sentences_of_a_translation_are_returned(translator):
    [[best]] = translator.candidates(["  A man.  A small dog.  "])
    assert best.text == "man. A dog. small A"
    assert best.sentences == (
        Sentence("A man.", "man. A", -1.0, 2),
        Sentence("A small dog.", "dog. small A", -1.0, 3),
    )
    [[whole]] = translator.candidates(["A man. A dog."], split_sentences=False)
    assert whole.sentences == (Sentence("A man. A dog.", "dog. A man. A", -1.0, 4),)
    assert translator.candidates([" "])[0][0].sentences == ()


@pytest.mark.parametrize("text", ["A man.\nA dog.", "A man.\u2028A dog.", "A man.\r\n\x85A dog."])
def test_a_text_with_line_breaks_has_a_translation_of_one_line(translator, text):
    assert translator.translate(text) == "man. A dog. A"
    assert translator.translate(text, split_sentences=False) == "dog. A man. A"


@pytest.mark.parametrize(
    ("languages", "changes", "expected"),
    [
        (("en", "de"), {}, True),
        (("eng_Latn", "deu_Latn"), {}, True),
        (("EN", "pt-BR"), {}, True),
        (("en", "en"), {}, False),
        (("en_GB", "en-US"), {}, False),
        (("eng", "en"), {}, False),
        (("source", "target"), {}, False),
        (("en", "target"), {}, False),
        (("en", "de"), {"subwords": "gpt2"}, False),  # BART's
        (("en", "de"), {"sentences_per_line": 1.0}, True),
        (("en", "de"), {"sentences_per_line": 1.5}, False),
        (("en", "de"), {"sentences_per_line": 4.0}, False),
    ],
)
def test_two_languages_are_translated_sentence_by_sentence_by_default(
    translator, languages, changes, expected
):
    translator._description = replace(translator._description, **changes)
    assert translator.splits(*languages) == expected
    for choice in (True, False):
        translator.split_sentences = choice
        assert translator.splits(*languages) == choice


@pytest.mark.parametrize("languages", [("EN", "DE"), ("eng_Latn", "de-AT"), ("en", "deu")])
def test_languages_have_any_spelling(translator, languages):
    source, target = languages
    assert translator.translate("A man.", source_lang=source, target_lang=target) == "man. A"
    with pytest.raises(
        UserError, match="source_lang must be one of the model's languages, en, but"
    ):
        translator.translate("A man.", source_lang="fr")


def test_the_option_of_a_call_has_priority(backwards, tmp_path):
    translator = Translator(words_only(tmp_path), split_sentences=False)
    assert translator.translate("A man. A dog.") == "dog. A man. A"
    assert translator.translate("A man. A dog.", split_sentences=True) == "man. A dog. A"


def test_the_score_of_a_line_is_the_mean_of_its_sentences(translator, monkeypatch):
    scores = {"A man.": -1.0, "A dog.": -4.0}
    translate = translator._engine.translate

    def score(sentences, search):
        beams = translate(sentences, search)
        return [
            [replace(h, score=scores[" ".join(sentence)]) for h in beam]
            for sentence, beam in zip(sentences, beams, strict=True)
        ]

    monkeypatch.setattr(translator._engine, "translate", score)
    [[best]] = translator.candidates(["A man. A dog."])
    assert best.score == -2.5
    assert [sentence.score for sentence in best.sentences] == [-1.0, -4.0]


def test_no_word_of_a_sentence_that_is_too_long_is_lost(translator, backwards):
    words = [f"w{number}" for number in range(67)]
    translated = translator.translate(" ".join(words)).split()
    assert sorted(translated) == sorted(words)
    assert max(len(sentence) for batch in backwards.batches for sentence in batch) == 20


def test_strict_names_the_line_and_translates_nothing(translator, backwards):
    with pytest.raises(TooLong, match=r"^line 2 has 21 subwords, but the model's limit is 20: "):
        translator.translate(["a", "b " * 21, "c"], strict=True)
    with pytest.raises(TooLong, match=r"^sentence 2 of line 1 has 21 subwords, but the model's "):
        translator.translate("A man. " + "Dog " * 20 + "ran. A cat.", strict=True)
    assert backwards.batches == []
    assert translator.translate("A man. " * 30, strict=True) == " ".join(["man. A"] * 30)


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
        ({"beam": 2.5}, "^beam must be an integer, but is 2.5$"),
        ({"beam": True}, "^beam must be an integer, but is True$"),
        ({"nbest": "2"}, "^nbest must be from 1 to the beam, 5, but is '2': widen the beam"),
        ({"lenpen": math.nan}, "^lenpen must be a finite number, but is nan$"),
        ({"lenpen": -math.inf}, "^lenpen must be a finite number, but is -inf$"),
        ({"lenpen": "1"}, "^lenpen must be a finite number, but is '1'$"),
        ({"split_sentences": "no"}, "^split_sentences must be True, False or None, but is 'no'$"),
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


@pytest.mark.slow
def test_a_line_as_long_as_the_model_takes_is_translated_whole(tmp_path):
    limits = ("--max-source-positions=12", "--max-target-positions=12")
    translator = Translator(untrained(tmp_path, "--arch=transformer_learned", *limits))
    assert translator.max_source_length == 11


def test_sentences_that_fit_into_a_line_stay_in_it():
    assert Tokenizer("none", None, "en").split("A man. A dog. A cat.", 4) == [
        ["A", "man.", "A", "dog."],
        ["A", "cat."],
    ]


def test_a_translation_that_the_search_did_not_find_has_no_score_of_a_certain_one(translator):
    engine = translator._engine
    translate = engine.translate
    engine.translate = lambda *args: [hypotheses[:1] for hypotheses in translate(*args)]
    [[best, missing]] = translator.candidates(["a b c"], nbest=2, beam=2)
    assert best.score == -1.0
    assert missing == Translation("", -math.inf)


HAN = ["一个男人骑着马走过田野。", "狗在跑，猫在睡觉，孩子们在花园里玩。"]
RUSSIAN = ["Мужчина скачет на лошади через поле."]
LATIN = ["a man rides a horse across a field"]


@pytest.mark.parametrize(
    ("source", "target", "lines", "text"),
    [
        ("en", "zh", HAN, "0% of its letters are in the script of en"),
        ("en", "de", RUSSIAN, "0% of its letters are in the script of en"),
        ("fi", "en", RUSSIAN, "0% of its letters are in the script of fi"),
        ("source", "zh", HAN, "100% of its letters are in the script of zh"),
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
        ("source", "target", HAN),
        ("sr", "en", LATIN),  # Serbian is also written in Latin letters
        ("cjy", "en", HAN),
        ("en", "zh", LATIN),
        ("zh", "en", HAN),
        ("ja", "zh", HAN),  # may be kanji
        ("zh", "en", ["GPU 3000"]),
        ("zh", "en", [*HAN, "PyTorch, CTranslate2, transformers and fairseq"]),
        ("eng_Xyzq", "zh_Hant", LATIN),
    ],
)
def test_a_text_that_may_be_in_the_source_language_is_not_logged(source, target, lines):
    assert explain_other_script(lines, source, target) is None


def test_the_likely_script_of_a_language_is_known():
    for name in ("en", "de", "ru", "el", "my", "ml", "te", "am", "ka", "hy", "he", "zh", "ko"):
        assert compile_letters(name) is not None, name
    assert compile_letters("hin_Deva").fullmatch("क")
    assert compile_letters("ja").fullmatch("の")
    assert compile_letters("ko").fullmatch("한")
    assert compile_letters("pes").fullmatch("ف")
    assert compile_letters("zh_TW").fullmatch("漢")
    assert compile_letters("te_IN").fullmatch("క")
    for name in ("cjy", "source", "xx", "eng_Xyzq"):
        assert compile_letters(name) is None, name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokenizer": "mosses"}, "--tokenizer must be none or moses, but is 'mosses'"),
        ({"tokenizer": ""}, "--tokenizer must be none or moses, but is ''"),
        ({"threads": -1}, "threads must be from 1 to 1,024, but is -1"),
        ({"threads": 0}, "threads must be from 1 to 1,024, but is 0"),
        ({"threads": 1025}, "threads must be from 1 to 1,024, but is 1025"),
        ({"threads": "2"}, "threads must be an integer, but is '2'"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, but is 0"),
        ({"split_sentences": "no"}, "split_sentences must be True, False or None, but is 'no'"),
    ],
)
def test_wrong_arguments_are_refused(backwards, tmp_path, arguments, message):
    with pytest.raises(UserError) as error:
        Translator(words_only(tmp_path), **arguments)
    assert str(error.value) == message


def test_one_text_is_no_list_of_candidates(translator):
    with pytest.raises(UserError, match=r"^lines must be a list of lines, but is one text: write "):
        translator.candidates("a b")
