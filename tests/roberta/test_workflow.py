"""The workflow's plan, and configs that it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIG = {
    "folder": "out",
    "text": {"en": ["text.txt"]},
    "models": {"rel": "bert_diet_rel"},
    "tasks": {"RTE": {"data": "RTE"}},
    "tuning": {"rates": [1e-4, 2e-4], "epochs": [1], "seeds": [1, 2]},
}


def run(folder, config, *options):
    """Snakemake's status and output."""
    (folder / "text.txt").write_text("a line\n\nanother\n")
    (folder / "RTE").mkdir(exist_ok=True)
    for split in ("train", "dev"):
        (folder / "RTE" / f"{split}.tsv").touch()
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    words = ["-s", EXAMPLES / "roberta/Snakefile", "--configfile", "config.yaml", *options]
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}
    return subprocess.run(
        [sys.executable, "-m", "snakemake", *map(str, words)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_grid_is_what_the_config_lists(tmp_path):
    pytest.importorskip("snakemake", reason="snakemake is not installed")
    done = run(tmp_path, CONFIG, "-n")
    assert done.returncode == 0, done.stderr
    counts = dict(line.split() for line in done.stdout.split("\n") if len(line.split()) == 2)
    assert counts["finetune"] == "4"
    assert counts["pretrain"] == counts["export"] == counts["table"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("masked_lm", "--task masked_lm --sample-break-mode complete --criterion masked_lm "),
        ("nsp", "--nsp --task masked_lm_nsp --criterion masked_lm_nsp "),
        ("electra", "--criterion electra --leave-unmasked-prob 0.15 "),
    ],
)
def test_an_objective_has_its_task_and_criterion(tmp_path, objective, options):
    pytest.importorskip("snakemake", reason="snakemake is not installed")
    done = run(tmp_path, CONFIG | {"objective": objective}, "-np")
    assert done.returncode == 0, done.stderr
    assert options in done.stdout


@pytest.mark.slow
def test_an_option_of_a_model_wins_over_the_config(tmp_path):
    pytest.importorskip("snakemake", reason="snakemake is not installed")
    models = {"a": "roberta_shaw --lr 1"}
    done = run(tmp_path, CONFIG | {"models": models, "options": "--lr 0.5"}, "-np")
    words = done.stdout.split()
    assert [words[at + 1] for at, word in enumerate(words) if word == "--lr"][-1] == "1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "name"), [({"colour": 1}, "colour"), ({"models": {"a": "bert_rope9"}}, "bert_rope9")]
)
def test_a_wrong_config_is_refused_by_name(tmp_path, change, name):
    pytest.importorskip("snakemake", reason="snakemake is not installed")
    done = run(tmp_path, CONFIG | change, "-n")
    assert done.returncode != 0
    assert name in done.stdout + done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_leftovers_of_killed_jobs_are_removed(tmp_path):
    pytest.importorskip("snakemake", reason="snakemake is not installed")
    leftover = tmp_path / "out" / "results" / "rel.csv.1-2.tmp"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    options = ("-j", "1", "--until", "clean")
    run(tmp_path, CONFIG, *options, "-n")
    assert leftover.exists()
    done = run(tmp_path, CONFIG, *options)
    assert done.returncode == 0, done.stderr
    assert not leftover.exists()
