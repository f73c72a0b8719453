"""The table: each paper's statistic, its averages, its rows beside ours."""

import json

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders import (
    glue_tasks,
    prepare_task,
    report,
    report_names,
    report_table,
    report_xtreme,
)
from tests.support.glue import run
from tests.support.road import cells, write


def cell(folder, task, row, rate, seed, arch="bert_diet_rel_tiny", **curves):
    """A finished cell whose dev sets had these values of the reported metric."""
    metric = glue_tasks.GLUE[task].metrics[0]
    found = {
        "row": row,
        "task": task,
        "rate": rate,
        "epochs": 3,
        "seed": seed,
        "curves": {
            split: [(place, {metric: value}) for place, value in enumerate(values)]
            for split, values in curves.items()
        },
        "model": {
            "arch": arch,
            "position_scheme": "tupe_r" if "tupe_r" in arch else "diet_rel",
            "position_sharing": "none",
            "position_rank": None,
            "segment_scheme": "per-head",
        },
    }
    name = f"lr{rate}_seed{seed}"
    cells.save(folder / "tasks" / task / "runs" / row / name / "result.json", found, [])


def prepared(folder, task, **guess):
    """A task as `prepare-glue` leaves it, as far as the table looks."""
    encoded = folder / "tasks" / task / "encoded"
    encoded.mkdir(parents=True)
    content = {"task": prepare_task.asdict(glue_tasks.GLUE[task])}
    (encoded / "made-from.json").write_text(json.dumps(content))
    (encoded / "guess.json").write_text(
        json.dumps(
            {split: {glue_tasks.GLUE[task].metrics[0]: value} for split, value in guess.items()}
        )
    )


@pytest.fixture
def folder(tmp_path):
    prepared(tmp_path, "RTE", valid=52.7)
    return tmp_path


def score(folder, statistic, row="ours", column="RTE"):
    rows = report.own(report_table.results(folder, None, None), folder, statistic)
    return next(one for one in rows if one.name == row).scores[column]


def test_diet_takes_the_maximum_over_checkpoints_and_tupe_the_last(folder):
    for seed, values in enumerate([(50, 60, 55), (70, 10, 20), (40, 50, 65)]):
        cell(folder, "RTE", "ours", 1e-4, seed, valid=values)
    diet, tupe = (score(folder, name) for name in ("diet", "tupe"))
    assert (diet.value, diet.lowest, diet.highest, diet.seeds) == (65, 60, 70, 3)
    assert (tupe.value, tupe.lowest, tupe.highest) == (55, 20, 65)


def test_the_learning_rate_is_the_one_whose_median_is_best_and_not_whose_best_seed_is(folder):
    for rate, values in ((1e-4, (60, 61, 62)), (2e-4, (10, 20, 90))):
        for seed, value in enumerate(values):
            cell(folder, "RTE", "ours", rate, seed, valid=[value])
    assert score(folder, "tupe") == report_table.Score(61, 60, 62, 3, 1e-4, 3)


def test_a_rate_that_not_all_seeds_have_finished_is_not_compared(folder):
    for seed in (1, 2):
        cell(folder, "RTE", "ours", 1e-4, seed, valid=[50 + seed])
    cell(folder, "RTE", "ours", 2e-4, 1, valid=[99])
    assert score(folder, "diet").value == 51.5


def test_both_of_mnli_s_dev_sets_are_taken_at_the_rate_that_is_best_on_the_matched_one(tmp_path):
    prepared(tmp_path, "MNLI", valid=33, valid1=34)
    cell(tmp_path, "MNLI", "ours", 1e-4, 1, valid=[70], valid1=[60])
    cell(tmp_path, "MNLI", "ours", 2e-4, 1, valid=[65], valid1=[80])
    assert score(tmp_path, "diet", column="MNLI-m").value == 70
    assert score(tmp_path, "diet", column="MNLI-mm").value == 60


def test_the_papers_averages_come_out_as_printed(shared_data):
    path = shared_data.parent / "paper_tables.json"
    glue = [name for name in report.PAPERS if name not in report_xtreme.PAPERS]
    for row in report.published(path, [name for name in glue if "diet" in name]):
        assert abs(row.average(report.DIET_AVERAGE) - row.values["Avg"]) < 0.051
    for row in report.published(path, ["tupe_table3_large"]):
        assert abs(row.average(report.TUPE_AVERAGE) - row.values["Avg"]) < 0.0051


TUPE = {
    "tupe_table3_large": {
        "rows": [
            {"model": "tupe_r_large", "steps": steps, "scores": {"RTE": score}}
            for steps, score in (("1M", 81.66), ("300k", 75.82))
        ]
    },
    "tupe_base_glue_avg": {"rows": {"tupe_r": 85.04, "tupe_r_300k": 83.68, "electra_tupe": 86.07}},
}


@pytest.mark.parametrize(
    ("arch", "beside"),
    [
        (
            "bert_tupe_r_large",
            [
                "| TUPE, table 3 | tupe_r_large, 1M updates | 81.7 | 81.7 |  |",
                "| TUPE, table 3 | tupe_r_large, 300k updates | 75.8 | 75.8 |  |",
            ],
        ),
        (
            "bert_tupe_r_tiny",
            [
                "| TUPE, table 1 | tupe_r |  |  | 85.0 |",
                "| TUPE, table 1 | tupe_r_300k |  |  | 83.7 |",
            ],
        ),
        ("electra_tupe_r", ["| TUPE, table 4 | electra_tupe |  |  | 86.1 |"]),
    ],
)
def test_tupe_s_rows_follow_ours_of_the_same_model(folder, tmp_path, capsys, arch, beside):
    cell(folder, "RTE", "a", 1e-4, 1, arch, valid=[60])
    cell(folder, "RTE", "b", 1e-4, 1, "bert_diet_rel", valid=[61])
    path = write(tmp_path / "tables.json", [json.dumps(TUPE)])
    tables = ("--tables", *TUPE, "--statistic", "tupe")
    run("report", "--folder", folder, "--papers", path, *tables)
    lines = capsys.readouterr().out.splitlines()
    [place] = [n for n, line in enumerate(lines) if line.startswith("| ours | a |")]
    assert sorted(lines[place + 1 : place + 1 + len(beside)]) == sorted(beside)
    assert lines[place + 1 + len(beside)].startswith("| ours | b |")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ({"position_scheme": "t5", "position_input": "learned"}, "bert_r"),
        ({"position_scheme": "t5", "position_input": "none"}, None),
        ({"position_scheme": "tupe_a", "position_untie_cls": "no"}, "tupe_a_tied_cls"),
        ({"position_scheme": "tupe_a", "position_untie_cls": "official"}, "tupe_a"),
        ({"position_scheme": "learned", "position_input": "learned"}, "bert_a"),
        ({"position_scheme": None}, None),
    ],
)
def test_a_model_has_its_name_in_tupe_s_tables(model, name):
    assert report_names.name_in_tupe({"arch": "bert_..."} | model) == ((name,) if name else ())


def test_the_rank_of_diet_abs_lin_is_not_in_its_name_as_the_papers_do_not_print_it():
    row = {"rank": 32, "projection": 128}
    assert report_names.key({"model": "diet_abs_lin", **row}) == "diet_abs_lin"
    assert report_names.key({"model": "diet_abs", **row}) == "diet_abs, rank 32"


def test_averages_are_empty_where_a_task_is_missing(folder):
    cell(folder, "RTE", "ours", 1e-4, 1, valid=[60])
    rows = list(report.own(report_table.results(folder, None, None), folder, "diet"))
    table = report_table.Table("diet", "", rows, report.COLUMNS, report.AVERAGES)
    assert table.markdown().splitlines() == [
        "| source | row | RTE | mean of these 1 |",
        "| --- | --- | --- | --- |",
        "| ours | the commonest label | 52.7 | 52.7 |",
        "| ours | ours | 60.0 | 60.0 |",
    ]


def test_the_spread_stands_behind_the_median():
    assert str(report_table.Score(61.26, 60, 62.5, 3, 1e-4, 3)) == "61.3 (60.0 to 62.5)"
    assert str(report_table.Score(61.26, 61.26, 61.26, 1, 1e-4, 3)) == "61.3"


def test_rows_are_chosen_and_ordered(folder, capsys):
    for row in ("a", "b", "c"):
        cell(folder, "RTE", row, 1e-4, 1, valid=[60])
    run("report", "--folder", folder, "--rows", "c", "a", "--statistic", "diet")
    rows = [line.split(" | ")[1] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == ["row", "---", "the commonest label", "c", "a"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rows", "a", "typo"), "--rows typo: TASKS has finished cells of 'a', 'b'"),
        (("--rows", "typo"), "--rows typo: TASKS has finished cells of 'a', 'b'"),
        (("--tasks", "MRPC", "typo"), "--tasks typo: TASKS has finished cells of 'MRPC', 'RTE'"),
        (("--tasks", "MRPC", "--rows", "b"), "--rows b: TASKS has finished cells of 'a'"),
    ],
)
def test_rows_and_tasks_that_have_no_finished_cell_are_named(folder, words, said):
    cell(folder, "RTE", "a", 1e-4, 1, valid=[60])
    cell(folder, "RTE", "b", 1e-4, 1, valid=[60])
    cell(folder, "MRPC", "a", 1e-4, 1, valid=[60])
    with pytest.raises(UserError) as error:
        run("report", "--folder", folder, *words)
    assert str(error.value) == (
        f"{said.replace('TASKS', str(folder / 'tasks'))}: take some of these, or run `finetune` "
        "first"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "can't be read: No such file or directory"),
        ("{}", "has no rows of diet_table2_glue: name another file, or other --tables"),
        (
            '{"diet_table2_glue": {"rows": [{"model": "bert"}]}}',
            "is not a paper_tables.json (row 1 of diet_table2_glue has no numbers as its scores): "
            "name another file",
        ),
    ],
)
def test_papers_tables_that_are_none_are_refused(folder, tmp_path, text, message):
    cell(folder, "RTE", "ours", 1e-4, 1, valid=[60])
    path = tmp_path / "tables.json"
    if text:
        write(path, [text])
    with pytest.raises(UserError) as error:
        run("report", "--folder", folder, "--papers", path)
    assert str(error.value) == f"--papers {path} {message}"


@pytest.mark.parametrize("name", ["x.xyz", "x", "png"])
def test_a_file_that_no_picture_is_drawn_in_is_refused_before_anything_is_shown(
    folder, tmp_path, capsys, name
):
    cell(folder, "RTE", "ours", 1e-4, 1, valid=[60])
    path, csv = tmp_path / name, tmp_path / "table.csv"
    with pytest.raises(
        UserError, match=rf"^--plot {path} must end in one of (\.\w+, )+\.\w+: give"
    ):
        run("report", "--folder", folder, "--plot", path, "--csv", csv)
    assert capsys.readouterr().out == ""
    assert not csv.exists()


def test_tasks_are_chosen(tmp_path, capsys):
    for task in ("RTE", "MRPC"):
        prepared(tmp_path, task, valid=50)
        cell(tmp_path, task, "ours", 1e-4, 1, valid=[60])
    run("report", "--folder", tmp_path, "--tasks", "RTE", "--statistic", "diet")
    assert "MRPC" not in capsys.readouterr().out


def test_every_dev_set_has_its_own_guess(tmp_path):
    prepared(tmp_path, "MNLI", valid=33, valid1=34)
    cell(tmp_path, "MNLI", "ours", 1e-4, 1, valid=[70], valid1=[60])
    guess, _ = report.own(report_table.results(tmp_path, None, None), tmp_path, "diet")
    assert guess.values == {"MNLI-m": 33, "MNLI-mm": 34}


def test_a_folder_for_the_numbers_that_is_not_there_is_refused_before_any_work(tmp_path):
    path = tmp_path / "none" / "table.csv"
    with pytest.raises(UserError) as error:
        run("report", "--folder", tmp_path, "--csv", path)
    assert str(error.value) == f"--csv {path}: there is no folder {path.parent}: make it first"
