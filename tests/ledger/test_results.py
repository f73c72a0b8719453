"""`diet-fairseq tables --results`: what came out of runs stands beside the papers' rows."""

import json

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.ledger import entries, results
from diet_fairseq.recipes.encoders import report, report_table, report_xtreme
from diet_fairseq_cli import main

#: of WMT18's test set, and of a text without a name
NAMED, UNNAMED = "nrefs:1|test:wmt18|lang:{}", "nrefs:1"


def shown(folders):
    """What came out, by table and row, where there are seeds."""
    return {
        (table.key, entry.row): (entry.ours, entry.seeds)
        for table in entries.tables(results=folders)
        for entry in table.entries
        if entry.seeds
    }


#: of tables of encoders
KEYS = ("diet_table8_glue_segments", "tupe_table3_large", "diet_table5_xtreme_ablation")


def score(value, seeds):
    return report_table.Score(value, 58.0, 61.5, seeds=seeds, rate=1e-5, epochs=5)


def finished(monkeypatch, folder, name, arch, glue, xtreme=None):
    """A folder whose fine-tunings gave a row these scores."""

    def own(guess, scores):
        row = report_table.Row("ours", name, scores=scores or {})
        row.values = {column: one.value for column, one in row.scores.items()}
        return lambda *_: iter([report_table.Row("ours", guess), row])

    scheme = arch.removeprefix("bert_").removesuffix("_tiny").removesuffix("_base")
    one = {"model": {"arch": arch, "position_scheme": scheme}}
    monkeypatch.setattr(results, "results", lambda *_: {name: {"CoLA": [one]}})
    monkeypatch.setattr(report, "own", own("the commonest label", glue))
    monkeypatch.setattr(report_xtreme, "own", own("the first sentence", xtreme))
    cell = folder / "tasks" / "CoLA" / "runs" / "row" / "cell"
    cell.mkdir(parents=True)
    (cell / report_table.RESULT).touch()
    return folder


def test_finished_fine_tunings_stand_beside_the_papers_rows(monkeypatch, tmp_path):
    glue = {"CoLA": score(60.1, 3)}
    xtreme = {"XQuAD": score(45.0, 1), "XQuAD de": score(50.0, 1)}
    row, arch = "diet_rel, segments per-head", "bert_diet_rel_tiny"
    found = shown([finished(monkeypatch, tmp_path, row, arch, glue, xtreme)])
    assert found["diet_table9_glue_sharing", row] == ("CoLA (tiny) 60.1 (58.0 to 61.5)", "3")
    assert found["diet_table3_xtreme", row] == ("XQuAD (tiny) 45.0", "1")


def test_fairseq_s_own_encoder_is_called_what_arch_calls_it():
    one = {"model": {"arch": "roberta_large", "position_scheme": None}}
    assert results.size_of({"CoLA": [one]}) == "roberta_large"


@pytest.mark.parametrize("key", ["diet_table2_glue", "tupe_base_glue_avg"])
def test_a_paper_s_average_stands_first_where_a_row_has_all_of_it(monkeypatch, tmp_path, key):
    row, columns = {
        "diet_table2_glue": ("t5", report.DIET_AVERAGE),
        "tupe_base_glue_avg": ("tupe_a", report.TUPE_AVERAGE),
    }[key]
    folder = finished(
        monkeypatch,
        tmp_path,
        row,
        f"bert_{row}_base",
        {name: score(60.0 + number, 5) for number, name in enumerate(columns)},
    )
    [(ours, seeds)] = shown([folder]).values()
    expected = 60 + (len(columns) - 1) / 2
    assert ours.startswith(f"average (base) {expected:.1f}, {columns[0]} (base) 60.0")
    assert seeds == "5"


def test_each_paper_s_rows_have_its_own_statistic(monkeypatch, tmp_path):
    folder = finished(monkeypatch, tmp_path, "tupe_a", "bert_tupe_a", {"CoLA": score(60.0, 5)})
    asked = []
    own = report.own
    monkeypatch.setattr(report, "own", lambda *words: [asked.append(words[-1]), own(*words)][1])
    assert shown([folder])["tupe_base_glue_avg", "tupe_a"] == (
        "CoLA (base) 60.0 (58.0 to 61.5)",
        "5",
    )
    assert sorted(asked) == sorted(report.STATISTICS)
    assert {entries.benchmark({"kind": "encoder", "key": key}) for key in KEYS} == {
        "glue, diet", "glue, tupe", "xtreme",
    }  # fmt: skip


@pytest.fixture
def put(tmp_path):
    """Writes down a score of a run, or of a cell of a grid, in a folder of a pair of languages."""

    def write(path, bleu, signature, **content):
        path = tmp_path / path
        path.parent.mkdir(parents=True, exist_ok=True)
        pair = path.relative_to(tmp_path).parts[1]
        signature = signature.format(pair)
        path.write_text(json.dumps({"BLEU": bleu, "BLEU signature": signature, **content}))

    return write


def of_table_4(*folders):
    """What came out, and its seeds, by row."""
    found = shown(folders)
    assert {table for table, _ in found} <= {"diet_table4_mt"}
    return {row: ours for (_, row), ours in found.items()}


def test_finished_translations_stand_beside_the_papers_rows(tmp_path, put):
    for seed, bleu in ((1, 30.0), (2, 31.0)):
        cell = f"wmt18/en-de/results/my-grid-shaw-s{seed}.json"
        put(cell, bleu, NAMED, row="shaw", seed=seed)
    encoder = tmp_path / "wmt18/en-de/results/of-encoders.json"
    encoder.write_text(json.dumps({"row": "shaw", "seed": 1, "loss": 3.0}))
    put("wmt18/en-de/runs/shaw-base-de-en/evaluation-test/scores.json", 28.04,
        "test:wmt18|lang:de-en")  # fmt: skip
    put("wmt18/cs-en/runs/diet_rel-tiny-cs-en/evaluation-wmt17/scores.json", 9.0, "test:wmt17")
    assert of_table_4(tmp_path / "wmt18") == {
        "shaw": ("de-en (base) 28.0, en-de (grid my-grid) 30.5", "1, 2"),
        "diet_rel": ("cs-en (tiny, wmt17) 9.0", "1"),
    }
    assert of_table_4(tmp_path / "wmt18" / "cs-en").keys() == {"diet_rel"}


def test_runs_of_two_budgets_are_not_averaged(tmp_path, put):
    for grid, bleu in (("long", 39.7), ("short", 32.7)):
        put(f"m/en-de/results/{grid}-shaw-s1.json", bleu, NAMED, row="shaw", seed=1)
    for size, bleu in (("base", 27.0), ("tiny", 17.0)):
        put(f"m/en-de/runs/shaw-{size}-en-de/evaluation-test/scores.json", bleu, NAMED)
    ours = "en-de (base) 27.0, en-de (grid long) 39.7, en-de (grid short) 32.7, en-de (tiny) 17.0"
    assert of_table_4(tmp_path / "m") == {"shaw": (ours, "1")}


def test_a_run_that_was_scored_twice_on_one_test_set_counts_once(tmp_path, put):
    for name in ("test", "wmt18"):
        put(f"m/en-de/runs/shaw-base-en-de/evaluation-{name}/scores.json", 27.0, NAMED)
    assert of_table_4(tmp_path / "m") == {"shaw": ("en-de (base) 27.0", "1")}


@pytest.mark.parametrize(
    ("start", "ours"),
    [("local", "en-de (base, gain and local start) 27.0"), ("blind", "en-de (base) 27.0")],
)
def test_a_start_that_is_not_the_papers_is_told(tmp_path, put, start, ours):
    run = "m/en-de/runs/diet_rel-base-en-de"
    put(f"{run}/evaluation-wmt18/scores.json", 27.0, NAMED)
    (tmp_path / run / "settings.json").write_text(json.dumps({"position_start": start}))
    assert of_table_4(tmp_path / "m") == {"diet_rel": (ours, "1")}


def test_a_score_that_names_no_test_set_is_not_taken_for_the_papers(tmp_path, put):
    put("m/en-de/runs/shaw-base-en-de/evaluation-test/scores.json", 27.0, UNNAMED)
    put("m/en-de/runs/shaw-base-en-de/evaluation-wmt18/scores.json", 29.0, NAMED)
    ours = "en-de (base) 29.0, en-de (base, no test set named) 27.0"
    assert of_table_4(tmp_path / "m") == {"shaw": (ours, "1")}


def test_folders_of_two_pairs_give_what_the_folder_above_them_gives(tmp_path, put):
    for pair, bleu in (("en-cs", 17.0), ("en-de", 27.0)):
        put(f"m/{pair}/runs/shaw-base-{pair}/evaluation-test/scores.json", bleu, NAMED)
    expected = {"shaw": ("en-cs (base) 17.0, en-de (base) 27.0", "1")}
    assert of_table_4(tmp_path / "m/en-cs", tmp_path / "m/en-de") == expected
    assert of_table_4(tmp_path / "m") == expected


def test_folders_whose_runs_nothing_tells_apart_are_refused(tmp_path, put):
    for place in ("a", "b"):
        put(f"{place}/en-de/runs/shaw-base-en-de/evaluation-test/scores.json", 27.0, NAMED)
    with pytest.raises(
        UserError, match=r"^--results .*b holds en-de \(base\) of shaw, and so does"
    ):
        of_table_4(tmp_path / "a", tmp_path / "b")


def test_results_of_a_folder_without_any_are_asked_for(tmp_path):
    with pytest.raises(
        UserError, match=r"^--results .* holds no finished cell of .* give a recipe"
    ):
        main(["tables", "--results", str(tmp_path)])
