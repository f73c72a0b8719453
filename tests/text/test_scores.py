"""sacreBLEU's scores and their signatures."""

import pytest
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from diet_fairseq.errors import UserError
from diet_fairseq.text.scores import bleu, paired_bootstrap, score

REFERENCES = [f"this is sentence number {n} of the test" for n in range(40)]


@pytest.mark.parametrize(
    ("pair", "tokenizer"),
    [
        (("en", "zh"), "zh"),
        (("en", "zh-CN"), "zh"),
        (("pt_BR", "ja_JP"), "ja-mecab"),
        (("zh-CN", "en"), "13a"),
    ],
)
def test_words_are_counted_by_the_rules_of_the_target_language(pair, tokenizer, monkeypatch):
    names = []
    monkeypatch.setattr(  # the tokenizers of Japanese and Korean are packages of their own
        "sacrebleu.metrics.bleu._get_tokenizer",
        lambda name: names.append(name) or Tokenizer13a,
    )
    bleu(pair)
    assert names == [tokenizer]


def test_the_signature_names_a_test_set_of_sacrebleu():
    signature = score(REFERENCES, REFERENCES, "wmt18", ("en", "de"))["BLEU signature"]
    assert "test:wmt18" in signature
    assert "lang:en-de" in signature


def test_translations_of_another_number_of_lines_are_refused():
    with pytest.raises(UserError, match="39 translations of 40 references"):
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
