"""The papers' statistics of fine-tunings."""

import csv
import json
import sys

import pytest

#: learning rate, seed -> accuracies at three evaluations, and the tested one
RUNS = {
    (1e-5, 1): ([50, 80, 60], 70),
    (1e-5, 2): ([50, 70, 65], 71),
    (1e-5, 3): ([50, 90, 55], 72),
    (2e-5, 1): ([10, 20, 75], 60),
    (2e-5, 2): ([10, 20, 76], 61),
    (2e-5, 3): ([10, 20, 77], 62),
}


@pytest.fixture
def results(tmp_path):
    paths = []
    for (rate, seed), (accuracies, tested) in RUNS.items():
        path = tmp_path / "rel-s1" / "XNLI" / f"{rate}-{seed}" / "result.json"
        path.parent.mkdir(parents=True)
        curve = [
            {"update": number, "en_loss": 1.0, "en_accuracy": value}
            for number, value in enumerate(accuracies)
        ]
        tests = {"de": {"accuracy": tested}, "en": {"accuracy": tested + 10}}
        content = {"rate": rate, "epochs": 3, "curve": curve, "tests": tests}
        path.write_text(json.dumps(content))
        paths.append(path)
    return paths


@pytest.mark.parametrize(
    ("statistic", "rate", "dev", "test"),
    [
        ("diet", "1e-05", ["80.0", "70.0", "90.0"], "76.0"),
        ("tupe", "2e-05", ["76.0", "75.0", "77.0"], "66.0"),
    ],
)
def test_the_median_at_the_best_rate_is_reported(
    script, results, tmp_path, monkeypatch, statistic, rate, dev, test
):
    output = tmp_path / "table.csv"
    words = ["tuning", output, "--statistic", statistic, "--results", *results]
    monkeypatch.setattr(sys, "argv", ["summary.py", *map(str, words)])
    script("summary").main()
    with open(output, newline="") as file:
        rows = {row["measure"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["en_accuracy", "test accuracy de", "test accuracy en", "test accuracy"]
    row = rows["en_accuracy"]
    assert [row["median"], row["least"], row["most"]] == dev
    assert (row["rate"], row["seeds"], row["model"], row["task"]) == (rate, "3", "rel-s1", "XNLI")
    assert rows["test accuracy"]["median"] == test


@pytest.mark.parametrize(
    ("losses", "last", "least"),
    [
        (["3", "1.5", "2"], "2", "1.5"),
        (["nan", "1.5", "nan"], "nan", "1.5"),
        (["nan"], "nan", ""),
        ([], "", ""),
    ],
)
def test_losses_that_are_not_finite_or_missing_are_no_least_loss(
    script, tmp_path, monkeypatch, losses, last, least
):
    entries = [{"epoch": 1, "wps": "100"}]
    entries += [
        {"epoch": 1, "valid_loss": loss, "valid_num_updates": str(number)}
        for number, loss in enumerate(losses, 1)
    ]
    (tmp_path / "train.log").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    words = ["pretraining", tmp_path / "table.csv", "--runs", tmp_path]
    monkeypatch.setattr(sys, "argv", ["summary.py", *map(str, words)])
    script("summary").main()
    with open(tmp_path / "table.csv", newline="") as file:
        [row] = csv.DictReader(file)
    assert [row["valid loss, bits"], row["least, bits"]] == [last, least]
    assert row["updates"] == (str(len(losses)) if losses else "")


def test_pairs_of_languages_count_in_no_mean(script):
    tests = {"MLQA": {"de": {"f1": 10.0}, "en": {"f1": 20.0}, "de-en": {"f1": 90.0}}}
    values = dict(script("summary").values_of({"curve": [{"f1": 1}], "tests": tests}, "diet"))
    assert values["MLQA f1"] == 15
    assert values["MLQA f1 de-en"] == 90


def test_the_model_as_it_was_is_the_first_row(script, tmp_path, monkeypatch):
    log = {"epoch": 1, "valid_loss": "5.5", "valid_num_updates": "1"}
    (tmp_path / "start.log").write_text(f"{json.dumps(log)}\n")
    run = tmp_path / "rel-s1"
    run.mkdir()
    (run / "train.log").write_text(json.dumps(log | {"valid_loss": "4.5"}))
    tables = []
    for number, model in enumerate(("as_it_was-1a2b", "rel-s1")):
        tables.append(tmp_path / f"{number}.csv")
        tables[-1].write_text(
            f"model,task,rate,epochs,measure,median\n{model},RTE,0.1,1,accuracy,{50 + number}\n"
        )
    for words in (
        ["pretraining", tmp_path / "losses.csv", "--runs", run, "--start", tmp_path / "start.log"],
        ["adaptation", tmp_path / "table.csv", "--pretraining", tmp_path / "losses.csv",
         "--tables", *tables],
    ):  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["summary.py", *map(str, words)])
        script("summary").main()
    assert (tmp_path / "table.csv").read_text() == (
        'model,"valid loss, bits",RTE accuracy\nas it was,5.5,50\nrel-s1,4.5,51\n'
    )
