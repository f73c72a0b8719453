"""sacreBLEU's scores and their signatures."""

import random
from statistics import NormalDist, stdev

import pytest
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from diet_fairseq.errors import UserError
from diet_fairseq.text.scores import SAMPLES, bleu, bootstrap_means, paired_bootstrap, score

REFERENCES = [f"this is sentence number {n} of the test" for n in range(40)]


@pytest.mark.parametrize(
    ("language", "tokenizer", "used"),
    [("zh-CN", "auto", "zh"), ("ja", "auto", "ja-mecab"), ("th", "char", "char")],
)
def test_words_are_counted_by_the_rules_of_the_target_language(
    language, tokenizer, used, monkeypatch
):
    names = []
    monkeypatch.setattr(  # the tokenizers of Japanese and Korean are packages of their own
        "sacrebleu.metrics.bleu._get_tokenizer",
        lambda name: names.append(name) or Tokenizer13a,
    )
    bleu(language, tokenizer)
    assert names == [used]


@pytest.mark.parametrize("language", ["zho_Hans", "cmn", "ZH"])
def test_a_spelling_of_a_language_changes_no_score(language):
    lines = ["猫坐在垫子上看着窗外的鸟", "狗在花园里跑来跑去很开心"]
    worse = [line.replace("在", "于") for line in lines]
    expected = score(worse, lines, pair=("en", "zh"))["BLEU"]
    assert expected > 10
    assert score(worse, lines, pair=("en", language))["BLEU"] == expected


@pytest.mark.parametrize(
    ("language", "error", "message"),
    [
        (
            "jpn",
            ImportError("\n\nno MeCab\n"),
            r"jpn .* ja-mecab.*\(no MeCab\): pip install 'sacre.*ja\]",
        ),
        ("th", OSError("no route"), r"th .* flores200.*\(no route\): connect .*, or choose a tok"),
    ],
)
def test_a_tokenizer_that_is_not_there_is_named_with_what_to_do(
    language, error, message, monkeypatch
):
    def fail(name):
        raise error

    monkeypatch.setattr("sacrebleu.metrics.bleu._get_tokenizer", fail)
    with pytest.raises(UserError, match=message):
        bleu(language)


def test_the_signature_names_a_test_set_of_sacrebleu():
    signature = score(REFERENCES, REFERENCES, "wmt18", ("en", "de"))["BLEU signature"]
    assert "test:wmt18" in signature
    assert "lang:en-de" in signature


def test_translations_of_another_number_of_lines_are_refused():
    with pytest.raises(
        UserError, match="one translation for each of 40 references, but there are 39"
    ):
        score(REFERENCES[1:], REFERENCES)


def test_the_bootstrap_counts_words_as_the_score_does():
    lines = ["猫坐在垫子上看着窗外的鸟", "狗在花园里跑来跑去很开心", "他每天早上都喝一杯咖啡"]
    worse = [line.replace("在", "于") for line in lines]
    difference, _ = paired_bootstrap(worse, lines, lines, ("en", "zh"))
    expected = 100 - score(worse, lines, pair=("en", "zh"))["BLEU"]
    assert difference == pytest.approx(expected)
    assert 0 < difference < 100


def test_a_better_system_differs_and_an_equal_one_does_not():
    worse = [line.replace("sentence", "thing") for line in REFERENCES]
    assert paired_bootstrap(worse, worse, REFERENCES) == (0.0, 1.0)
    difference, p = paired_bootstrap(worse, REFERENCES, REFERENCES)
    assert difference > 10
    assert p < 0.05


def test_scores_of_sentences_are_compared_by_pairs():
    draw = random.Random(2)
    hard = [draw.random() for _ in range(200)]  # how hard a sentence is matters more than a system
    better = [score + draw.uniform(0, 0.02) for score in hard]
    other = [score + draw.uniform(-0.02, 0.02) for score in hard]
    gain, p = bootstrap_means(hard, better)
    assert gain == pytest.approx(0.01, abs=0.002)
    assert p == 1 / (SAMPLES + 1)
    assert bootstrap_means(better, hard) == pytest.approx((-gain, p))
    assert bootstrap_means(hard, hard) == (0.0, 1.0)
    gain, p = bootstrap_means(hard, other)
    # a mean of many sentences is normal
    differences = [b - a for a, b in zip(hard, other, strict=True)]
    expected = 2 * NormalDist().cdf(-abs(gain) / (stdev(differences) / 200**0.5))
    assert p == pytest.approx(expected, abs=0.05)
    assert p > 0.1
    with pytest.raises(UserError, match="there are 199 scores of a system and 200 of its baseline"):
        bootstrap_means(hard, other[1:])
