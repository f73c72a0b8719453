"""XTREME's table: DIET's form and average, no test set selected by, trivial answers beside."""

import json
from dataclasses import asdict

import pytest

from diet_fairseq.recipes.encoders import report, report_table, report_xtreme, trivial
from diet_fairseq.recipes.encoders.glue_tasks import Columns
from diet_fairseq.recipes.encoders.squad import Question
from diet_fairseq.recipes.encoders.xtreme_tasks import Transfer
from tests.support.glue import run
from tests.support.road import cells, write


def prepared(folder, name, languages, metrics, guess):
    """A task as `prepare-xtreme` leaves it, as far as the table looks."""
    splits = {f"valid{number}": language for number, language in enumerate(languages, 1)}
    task = Transfer(name, Columns(()), metrics=metrics, dev_files={"valid": "dev", **splits},
                    questions=name != "XNLI")  # fmt: skip
    encoded = folder / "tasks" / name / "encoded"
    encoded.mkdir(parents=True)
    (encoded / "made-from.json").write_text(json.dumps({"task": asdict(task)}))
    (encoded / "guess.json").write_text(json.dumps(guess))


def cell(folder, task, seed, rate=1e-4, **curves):
    """A finished cell: split -> its values at the checkpoints, (F1, exact match) or accuracy."""
    names = ("f1", "exact_match")

    def metrics(value):
        return dict(zip(names, value, strict=True)) if task != "XNLI" else {"accuracy": value}

    found = {
        "row": "ours", "task": task, "rate": rate, "epochs": 3, "seed": seed,
        "curves": {
            split: [(place, metrics(value)) for place, value in enumerate(values)]
            for split, values in curves.items()
        },
        "model": {"arch": "bert_diet_rel_tiny", "position_scheme": "diet_rel",
                  "position_sharing": "none", "position_rank": None,
                  "segment_scheme": "per-head"},
    }  # fmt: skip
    path = folder / "tasks" / task / "runs/ours" / f"lr{rate}_seed{seed}" / "result.json"
    cells.save(path, found, [])


@pytest.fixture
def folder(tmp_path):
    trivial_ = {
        "the first sentence": {
            split: {"f1": value, "exact_match": 0.0}
            for split, value in (("valid", 9.0), ("valid1", 4.0), ("valid2", 6.0))
        }
    }
    prepared(tmp_path, "XQuAD", ("de", "th"), ("f1", "exact_match"), trivial_)
    prepared(tmp_path, "MLQA", ("de", "de-en"), ("f1", "exact_match"), {})
    prepared(tmp_path, "XNLI", ("sw",), ("accuracy",), {"valid1": {"accuracy": 33.3}})
    return tmp_path


def test_the_checkpoint_is_the_best_on_english_held_out_and_no_test_set_s(folder):
    cell(folder, "XQuAD", 1, valid=[(50, 40), (60, 30), (55, 50)],
         valid1=[(90, 80), (20, 10), (90, 80)], valid2=[(90, 80), (40, 20), (90, 80)])  # fmt: skip
    [_, ours] = report_xtreme.own(report_table.results(folder, None, None), folder)
    assert ours.values["XQuAD-F1"] == 30
    assert ours.values["XQuAD-EM"] == 15
    assert ours.values["XQuAD-F1 th"] == 40


def test_the_median_of_seeds_is_taken_at_the_rate_that_is_best_on_english(folder):
    for rate, dev in ((1e-4, 60), (2e-4, 50)):
        for seed, f1 in enumerate((10, 20, 60)):
            cell(folder, "MLQA", seed, rate, valid=[(dev, 1)], valid1=[(f1 + rate, 2)],
                 valid2=[(99, 99)])  # fmt: skip
    [ours] = [one for one in report_xtreme.own(report_table.results(folder, None, None), folder)
              if one.scores]  # fmt: skip
    score = ours.scores["MLQA-F1"]
    assert (score.value, score.lowest, score.highest) == (20 + 1e-4, 10 + 1e-4, 60 + 1e-4)
    assert (score.seeds, score.rate) == (3, 1e-4)


def test_what_was_trained_on_another_set_is_a_row_of_its_own(folder, capsys):
    prepared(folder, "XQuAD-tydiqa", ("de",), ("f1", "exact_match"), {})
    cell(folder, "XQuAD", 1, valid=[(50, 40)], valid1=[(30, 20)], valid2=[(10, 0)])
    cell(folder, "XQuAD-tydiqa", 1, valid=[(50, 40)], valid1=[(60, 50)])
    cell(folder, "XNLI", 1, valid=[50], valid1=[40])
    run("report", "--folder", folder)
    said = capsys.readouterr().out.splitlines()
    rows = [line for line in said if line.startswith("| ours | ours")]
    assert rows == [
        "| ours | ours | 40.0 | 20.0 | 10.0 | 23.3 |",
        "| ours | ours, on tydiqa | 40.0 | 60.0 | 50.0 | 50.0 |",
    ]
    assert said.count("XQuAD, F1 / exact match") == 1
    assert said[-2:] == [
        "| ours | 30.0 / 20.0 | 10.0 / 0.0 |",
        "| ours, on tydiqa | 60.0 / 50.0 |  /  |",
    ]


@pytest.mark.parametrize(
    ("ran", "rows"),
    [
        (["XNLI"], {"": ["XNLI"]}),
        (["XNLI", "XQuAD", "MLQA"], {"": ["MLQA", "XNLI", "XQuAD"]}),
        (["XNLI", "XQuAD-tydiqa"], {"tydiqa": ["XNLI", "XQuAD-tydiqa"]}),
        (["XNLI", "XNLI-mine", "MLQA"], {"": ["MLQA", "XNLI"], "mine": ["XNLI-mine"]}),
        (["XNLI", "XNLI-mine"], {"": ["XNLI"], "mine": ["XNLI-mine"]}),
    ],
)
def test_a_row_has_one_training_set_of_each_kind(ran, rows):
    tasks = {name: Transfer(name, Columns(()), questions="XNLI" not in name) for name in ran}
    found = report_xtreme.by_training_set(tasks)
    assert {name: sorted(some) for name, some in found.items()} == rows


def test_of_equal_checkpoints_the_last_is_taken_which_fairseq_keeps(folder):
    cell(folder, "XQuAD", 1, valid=[(50, 40), (50, 30)], valid1=[(90, 80), (20, 10)],
         valid2=[(90, 80), (40, 20)])  # fmt: skip
    [_, ours] = report_xtreme.own(report_table.results(folder, None, None), folder)
    assert ours.values["XQuAD-F1"] == 30


def test_the_papers_averages_come_out_as_printed_but_for_two(shared_data):
    rows = list(report.published(shared_data.parent / "paper_tables.json",
                                 list(report_xtreme.PAPERS)))  # fmt: skip
    assert len(rows) == 9 + 15
    said = report_xtreme.misprints(rows).splitlines()
    assert said == [
        "DIET, table 5 prints 54.7 as the average of diet_rel, shared head, segments per-head, "
        "whose numbers have the mean 54.86.  ",
        "DIET, table 5 prints 57.3 as the average of diet_rel, shared layer, segments per-head, "
        "whose numbers have the mean 57.37.  ",
    ]


PAPER = {"diet_table3_xtreme": {"rows": [{
    "model": "diet_rel", "segment": "per-head",
    "scores": {**dict.fromkeys(report_xtreme.COLUMNS, 50.0), "Avg": 50.0},
}]}}  # fmt: skip


def test_the_table_has_diet_s_columns_and_every_language(folder, capsys):
    cell(folder, "XQuAD", 1, valid=[(50, 40)], valid1=[(30, 20)], valid2=[(10, 0)])
    cell(folder, "XNLI", 1, valid=[50], valid1=[40])
    path = write(folder / "tables.json", [json.dumps(PAPER)])
    csv = folder / "numbers.csv"
    run("report", "--folder", folder, "--papers", path, "--tables", "diet_table3_xtreme", "--csv",
        csv)  # fmt: skip
    said = capsys.readouterr().out.splitlines()
    table = [line for line in said if line.startswith("| ")]
    assert table[:6] == [
        "| source | row | XNLI | XQuAD-F1 | XQuAD-EM | mean of these 3 | DIET's avg. |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| ours | the commonest label | 33.3 |  |  |  |  |",
        "| ours | the first sentence |  | 5.0 | 0.0 |  |  |",
        "| ours | ours | 40.0 | 20.0 | 10.0 | 23.3 |  |",
        "| DIET, table 3 | diet_rel, segments per-head | 50.0 | 50.0 | 50.0 | 50.0 | 50.0 |",
    ]
    place = said.index("XQuAD, F1 / exact match")
    assert said[place + 2] == "| row | de | th |"
    assert said[place + 5] == "| ours | 30.0 / 20.0 | 10.0 / 0.0 |"
    assert "xtreme,ours,ours,XQuAD-F1 de,30," in csv.read_text()


# Answers that need no learning


def asked(context, question, answer):
    return Question("1", question, context, ((answer, context.index(answer)),))


def test_the_first_sentence_ends_where_a_sentence_does():
    one = asked("It cost 3.5 dollars. Then less.", "What?", "less")
    assert trivial.first_sentence(one) == "It cost 3.5 dollars."
    assert trivial.first_sentence(asked("你好。再见。", "?", "你")) == "你好。"


def test_the_best_window_answers_with_what_the_question_does_not_say():
    one = asked("Big old Max Junior is the dog of Ada. " + "Once there were cats. " * 9,
                "What is the dog of Ada called?", "Max")  # fmt: skip
    assert trivial.best_window(one) == "Big old Max Junior"


def test_trivial_answers_are_scored_by_the_language_s_rules():
    from diet_fairseq.data import answers

    found = trivial.scores([asked("Ada. Max.", "Who?", "Ada")], answers.squad)
    assert found["the first sentence"] == {"f1": 100.0, "exact_match": 100.0}


def test_a_mean_over_languages_is_no_median():
    task = report_xtreme.Transfer(
        "XNLI",
        Columns(()),
        metrics=("accuracy",),
        dev_files={"valid": "dev", "valid1": "de", "valid2": "th", "valid3": "sw"},
    )
    values = {"valid": 0.0, "valid1": 80.0, "valid2": 50.0, "valid3": 20.0 + 3}
    found = report_xtreme.averaged(task, {s: {"accuracy": v} for s, v in values.items()})
    assert found["XNLI"] == 51
