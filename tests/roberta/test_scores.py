"""Scores against XTREME's own scorer, and MLQA's rules."""

import shutil

import pytest

from diet_fairseq.errors import UserError

#: evaluate_test.py of google-research/xtreme
OFFICIAL = {
    "xnli": {"accuracy": 30.666666666666668},
    "pawsx": {"accuracy": 51.42857142857143},
    "xquad": {"exact_match": 77.27272727272727, "f1": 79.9586776859504},
    "mlqa": {"exact_match": 57.142857142857146, "f1": 81.76870748299321},
    "tydiqa": {"exact_match": 88.88888888888889, "f1": 97.22222222222223},
}


@pytest.fixture(scope="module")
def mock(shared_data):
    return shared_data / "xtreme" / "mock_scores"


def test_mock_scores_are_exact(script, mock):
    scores = script("scores").score_folders(mock / "labels", mock / "predictions")
    means = {
        task: {metric: languages["mean"] for metric, languages in metrics.items()}
        for task, metrics in scores.items()
    }
    assert means == OFFICIAL


@pytest.mark.parametrize("answer", ["The", "!", "a cat"])
def test_an_empty_reference_has_f1_0_as_in_squad_s_script(script, answer):
    scores = script("scores").question_scores("xquad", "en", {"1": answer}, {"1": ["the"]})
    assert scores == {"f1": 0.0, "exact_match": 100.0 * (answer != "a cat")}


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("en", "The cat's $5 – a “bargain”!", "cats 5 bargain"),
        ("de", "Der Hund, des Königs", "hund königs"),
        ("es", "¿Unas casas?", "casas"),
        ("vi", "của Những người", "người"),
        ("zh", "《中国》 is 大 big", "中 国 is 大 big"),
        ("ar", "الكتاب", "كتاب"),
        ("hi", "एक किताब।", "एक किताब"),
    ],
)
def test_mlqa_has_rules_for_every_language(script, language, text, words):
    assert " ".join(script("scores").mlqa_words(text, language)) == words


def test_missing_predictions_are_refused(script, mock, tmp_path):
    shutil.copytree(mock / "predictions", tmp_path / "predictions")
    (tmp_path / "predictions/xquad/test-de.json").write_text("{}")
    with pytest.raises(UserError, match=r"test-de\.json has no answer to"):
        script("scores").score_folders(mock / "labels", tmp_path / "predictions")
    (tmp_path / "predictions/xnli/test-de.tsv").write_text("neutral\n")
    with pytest.raises(UserError, match="has 1 labels for"):
        script("scores").score_folders(mock / "labels", tmp_path / "predictions")


@pytest.mark.parametrize("names", [["pearson", "spearman"], ["f1", "matthews", "accuracy"]])
def test_constant_predictions_have_a_score(script, names):
    values = script("scores").label_scores(names, [0, 1, 1], [1, 1, 1])
    assert values.keys() == set(names)
    assert all(value == value for value in values.values())
