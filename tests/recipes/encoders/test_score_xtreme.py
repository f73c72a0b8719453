"""``score-xtreme`` against XTREME's own scorer, and what it refuses."""

import json
import shutil
from pathlib import Path

import pytest

from diet_fairseq.data import answers
from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders.score_xtreme import of_labels, scores
from tests.support.glue import run

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


def test_the_official_scores_are_met_to_the_last_digit(mock, capsys):
    assert run("score-xtreme", mock / "labels", mock / "predictions") == 0
    found = json.loads(capsys.readouterr().out)
    means = {
        task: {name: by_language["mean"] for name, by_language in metrics.items()}
        for task, metrics in found.items()
    }
    assert means == OFFICIAL
    counts = {task: len(metrics.popitem()[1]) - 1 for task, metrics in found.items()}
    assert counts == {"xnli": 15, "pawsx": 7, "xquad": 11, "mlqa": 7, "tydiqa": 9}


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
def test_mlqa_has_rules_of_its_own_for_every_language(language, text, words):
    assert " ".join(answers.mlqa(language)(text)) == words


def test_squad_s_rules_are_english_everywhere():
    assert answers.squad("The “Hund” des a. Königs") == ["“hund”", "des", "königs"]


def test_white_space_around_a_label_does_not_count():
    assert of_labels(["0", "1 "], ["0\t", "2"], Path("test-en.tsv")) == {"accuracy": 50.0}


def test_the_nearest_of_several_right_answers_counts():
    right = ["red", "red and blue ball"]
    assert answers.f1("The red ball", right, answers.squad) == pytest.approx(2 / 3)
    assert answers.exact_match("the RED!", right, answers.squad) == 1
    assert answers.f1("", right, answers.squad) == 0


def test_a_pair_of_languages_is_scored_by_the_text_s_rules_and_counts_in_no_mean(mock, tmp_path):
    for side in ("labels", "predictions"):
        shutil.copytree(mock / side / "mlqa", tmp_path / side / "mlqa")
        files = tmp_path / side / "mlqa"
        shutil.copy(files / "test-de.json", files / "test-de-en.json")
    found = scores(tmp_path / "labels", tmp_path / "predictions")["mlqa"]
    assert found["f1"]["de-en"] == found["f1"]["de"]
    assert found["f1"]["mean"] == OFFICIAL["mlqa"]["f1"]


def copied(mock, folder, change):
    shutil.copytree(mock / "predictions" / "mlqa", folder / "mlqa")
    change(folder / "mlqa")
    return folder


def without_answers(folder):
    (folder / "test-de.json").write_text("{}")


def with_others(folder):
    path = folder / "test-de.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"q": "a"}))


def with_french(folder):
    (folder / "test-de.json").rename(folder / "test-fr.json")


def with_numbers(folder):
    (folder / "test-de.json").write_text('{"a": 1}')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_answers, "mlqa/test-de.json has no answer to 1 of 1 questions, the first is "
         "c076d4b0a1967805a45e7ab1e247e3a0739d4850: predict all of them"),
        (with_others, "mlqa/test-de.json answers 1 questions that the labels don't have, one is "
         "q: give the labels that belong to it"),
        (with_french, "mlqa/test-fr.json: MLQA has no language fr: take ar, de, en, es, hi, vi, "
         "zh"),
        (with_numbers, 'mlqa/test-de.json must have one object, {"ID": "answer", ...}: correct '
         "the file"),
    ],
)  # fmt: skip
def test_predictions_that_do_not_fit_are_refused(mock, tmp_path, change, message):
    with pytest.raises(UserError) as error:
        scores(mock / "labels", copied(mock, tmp_path, change))
    assert str(error.value) == f"{tmp_path}/{message}"


def test_labels_that_are_too_few_are_refused(mock, tmp_path):
    (tmp_path / "xnli").mkdir()
    (tmp_path / "xnli" / "test-de.tsv").write_text("neutral\n")
    with pytest.raises(UserError) as error:
        scores(mock / "labels", tmp_path)
    assert str(error.value) == (
        f"{tmp_path}/xnli/test-de.tsv has 1 labels for 10 lines: predict all of them"
    )


def test_a_folder_without_predictions_is_refused(mock, tmp_path):
    with pytest.raises(UserError) as error:
        scores(mock / "labels", tmp_path)
    assert str(error.value) == (
        f"{tmp_path} has no predictions of xnli, pawsx, xquad, mlqa, tydiqa: put them into "
        f"{tmp_path}/TASK/test-LANGUAGE.json (.tsv for labels)"
    )
