"""Every table of both papers is a target, and every row of it is planned."""

import re
from collections import defaultdict

import pytest
import yaml

from tests.workflows.conftest import EXAMPLES, Experiment, script

TABLES = yaml.safe_load((EXAMPLES / "papers" / "tables.yaml").read_text())["tables"]
TASKS = yaml.safe_load((EXAMPLES / "roberta" / "tasks.yaml").read_text())
PRESETS = {
    name: yaml.safe_load((EXAMPLES / "roberta" / "configs" / f"{name}.yaml").read_text())
    for name in ("diet", "diet-multilingual", "tupe", "tupe-large", "electra")
}


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """A folder with the text and the tasks that the presets name, but for pinned downloads."""
    folder = tmp_path_factory.mktemp("papers")
    files = []
    for preset in PRESETS.values():
        files += [file for language in preset["text"].values() for file in language]
        for name, settings in preset["tasks"].items():
            sets = [TASKS[name][split] for split in ("dev", "tests") if split in TASKS[name]]
            names = [TASKS[name]["train"], *(file for part in sets for file in part.values())]
            files += [f"{settings['data']}/{file}" for file in names]
        downloads = preset.get("downloads", {})
        files += [path for path, source in downloads.items() if source["sha256"] is None]
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    experiment = Experiment(folder)
    experiment.snakefile = "papers/Snakefile"
    (folder / "config.yaml").write_text("{}")
    return experiment


@pytest.mark.slow
def test_every_row_of_every_table_is_planned(papers):
    """Tables of one preset share their models."""
    stats = re.search(r"Job stats:\n(.*?)\ntotal", papers.planned(*TABLES), re.DOTALL)
    jobs = {name: int(count) for name, count in map(str.split, stats[1].split("\n")[2:])}
    assert jobs["parameters"] == 1
    for pair in ("en_de", "de_en", "en_cs", "cs_en"):
        assert jobs[f"{pair}_train"] == 3
    models = defaultdict(set)
    for table in TABLES.values():
        for row in table["rows"] if "preset" in table else []:
            models[row.get("preset", table["preset"])].add(row["model"])
    for preset, rows in models.items():
        prefix, config = preset.replace("-", "_"), PRESETS[preset]
        tuning = config["tuning"]
        runs = len(tuning["rates"]) * len(tuning["seeds"])
        epochs = [len(task.get("epochs", tuning["epochs"])) for task in config["tasks"].values()]
        assert jobs[f"{prefix}_table"] == jobs[f"{prefix}_export"] == len(rows)
        assert jobs[f"{prefix}_finetune"] == len(rows) * runs * sum(epochs)
        if "questions" in config:  # one training on SQuAD for XQuAD, MLQA and TyDiQA
            assert jobs[f"{prefix}_answer"] == len(rows) * runs


def test_every_row_names_a_model_of_its_preset():
    for table in TABLES.values():
        for row in table["rows"] if "preset" in table else []:
            assert row["model"] in PRESETS[row.get("preset", table["preset"])]["models"]


def test_the_carried_summary_is_what_the_script_writes(shared_data, tmp_path, monkeypatch):
    output = tmp_path / "papers.csv"
    words = [output, "--papers", shared_data.parent / "paper_tables.json"]
    monkeypatch.setattr("sys.argv", ["summary.py", *map(str, words)])
    script("papers/summary").main()
    assert output.read_text() == (EXAMPLES.parent / "results" / "papers.csv").read_text()


@pytest.mark.slow
def test_a_file_without_checksum_is_refused_before_anything_runs(papers):
    (papers.folder / "XTREME" / "xquad.el.json").unlink()
    try:
        status, output = papers.plan("diet_table_3")
    finally:
        (papers.folder / "XTREME" / "xquad.el.json").touch()
    assert status == 1
    message = "config.downloads.XTREME/xquad.el.json: sha256 is required for a download, but is"
    assert message in output
