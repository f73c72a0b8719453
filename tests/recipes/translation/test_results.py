"""The runner of results trains what is missing, and its table says what came out."""

import json
import re
from itertools import pairwise

import pytest

from tests.support.road import script

results = script("multi30k/results.py")


@pytest.fixture
def called(tmp_path, monkeypatch):
    """Runs the script with stand-ins for training and evaluating; returns what it called."""
    calls = []

    def call(command, stdout, stderr):
        words = dict(pairwise(command))
        run = tmp_path / "en-de" / "runs" / words["--run"]
        calls.append((command[2], words["--run"]))
        if command[2] == "train":
            (run / "train.log").write_text(
                "| num. shared model params: 2,322,432 (num. trained: 1)\n"
                "| num_updates 4 | train_wall 81 | wall 60\n"
                "| num_updates 1000 | train_wall 81 | wall 120\n"
            )
        elif "shaw" in words["--run"]:
            return 1
        else:
            (run / "evaluation-test").mkdir()
            signatures = {"BLEU signature": "nrefs:1", "chrF signature": "nc:6"}
            seed = int(re.search(r"seed(\d+)", words["--run"])[1])
            scores = {"BLEU": 30.5 + seed, "chrF": 50.25, **signatures}
            (run / "evaluation-test" / "scores.json").write_text(json.dumps(scores))
        return 0

    monkeypatch.setattr("subprocess.call", call)

    def main(*arguments):
        calls.clear()
        words = ["results.py", "--data", str(tmp_path), *arguments]
        monkeypatch.setattr("sys.argv", words)
        return results.main(), calls

    return main


def test_every_cell_is_trained_and_evaluated_once(called):
    status, calls = called("--rows", "none", "diet_abs, rank 128", "--seeds", "1", "2")
    assert status == 0
    assert len(calls) == 8
    assert called("--rows", "none", "diet_abs, rank 128", "--seeds", "1", "2", "3")[1] == [
        (name, f"{row}_tiny_1000_en-de_seed3")
        for row in ("none", "diet_abs-rank-128")
        for name in ("train", "evaluate")
    ]


def test_another_budget_is_another_cell(called):
    called("--rows", "none")
    assert len(called("--rows", "none", "--updates", "50")[1]) == 2


def test_other_options_of_fairseq_train_are_another_cell(called):
    called("--rows", "none")
    assert called("--rows", "none", "--lr", "0.5")[1] == [
        (name, "none_tiny_1000_en-de_seed1_lr_0.5") for name in ("train", "evaluate")
    ]
    assert called("--rows", "none", "--adam-betas", "(0.9, 0.5)")[1][0] == (
        "train", "none_tiny_1000_en-de_seed1_adam-betas_~0.9~0.5~"
    )  # fmt: skip


def test_a_failed_cell_does_not_stop_the_others(called, capsys):
    status, _ = called("--rows", "shaw", "none")
    assert status == 1
    said = capsys.readouterr().out.splitlines()
    assert "shaw_tiny_1000_en-de_seed1: FAILED: evaluate ended with status 1, see" in said[0]
    assert said[1].endswith("none_tiny_1000_en-de_seed1: BLEU 31.50, chrF 50.25")
    assert len(called("--rows", "shaw", "none")[1]) == 2  # again


def test_the_table_shows_means_and_spread(called, capsys):
    called("--rows", "none", "stock sinusoidal", "--seeds", "1", "2", "--jobs", "2")
    called("--rows", "stock sinusoidal", "--seeds", "3", "--jobs", "2")
    capsys.readouterr()
    assert called("--table", "--seeds", "1", "2")[0] == 0
    said = capsys.readouterr().out
    assert "| none | 32.00 ± 0.71 | 50.25 ± 0.00 | 2,322,432 | 2.0 | 1, 2 |" in said
    assert "| stock sinusoidal |" in said
    assert "diet" not in said
    assert "BLEU: `nrefs:1`" in said


def test_every_row_is_a_scheme_that_train_knows():
    for row, (scheme, *options) in results.ROWS.items():
        assert scheme in row or (scheme, row) == ("stock", "stock sinusoidal")
        assert options in ([], ["--position-rank", "128"])
