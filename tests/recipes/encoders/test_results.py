"""The runner of results pretrains what is missing; its table says what came out."""

import json
import math
from itertools import pairwise

import pytest

from diet_fairseq.positions import SCHEMES
from tests.support.road import script

results = script("roberta/results.py")


@pytest.fixture
def called(tmp_path, monkeypatch):
    """Runs results.py with a stand-in for pretraining; returns what it called."""
    calls = []

    def call(command, stdout, stderr):
        words = dict(pairwise(command))
        run, seed = tmp_path / "runs" / words["--run"], int(words["--seed"])
        calls.append(words["--run"])
        if "shaw" in words["--run"]:
            return 1
        end = 500 if "t5_" in words["--run"] else 1000
        valid = "| valid | epoch 001 | valid on 'valid' subset | loss {} | ppl 9 | num_updates {}\n"
        (run / "train.log").write_text(
            "| num. shared model params: 2,322,432 (num. trained: 1)\n"
            + "| num_updates 4 | train_wall 81 | wall 60\n"
            + valid.format(9.5, 500)
            + valid.format(9.25, 500)
            + valid.format(7 + seed, end)
            + "| num_updates 1000 | train_wall 81 | wall 120\n"
        )
        return 0

    monkeypatch.setattr("subprocess.call", call)

    def main(*arguments):
        calls.clear()
        monkeypatch.setattr("sys.argv", ["results.py", "--data", str(tmp_path), *arguments])
        return results.main(), calls

    return main


def test_every_cell_is_pretrained_once(called):
    status, calls = called("--rows", "none", "t5, learned input", "--seeds", "1", "2")
    assert (status, len(calls)) == (0, 4)
    assert called("--rows", "none", "t5, learned input", "--seeds", "1", "2", "3")[1] == [
        f"{row}_roberta_machine_tiny_1000_seed3" for row in ("none", "t5-learned-input")
    ]


def test_another_budget_is_another_cell(called):
    called("--rows", "none")
    assert called("--rows", "none", "--encoder", "bert")[1] == ["none_bert_machine_tiny_1000_seed1"]


def test_a_failed_or_unfinished_cell_does_not_stop_the_others(called, capsys):
    status, _ = called("--rows", "shaw", "t5", "none")
    assert status == 1
    said = capsys.readouterr().out.splitlines()
    assert "FAILED: pretrain ended with status 1, see" in said[0]
    assert "FAILED: the last update was not validated, see" in said[1]
    assert said[2].endswith("none_roberta_machine_tiny_1000_seed1: loss 5.545, perplexity 256.0")
    assert len(called("--rows", "shaw", "none")[1]) == 1  # again


def test_a_cell_keeps_its_curve(called, tmp_path):
    called("--rows", "none")
    [path] = (tmp_path / "results").iterdir()
    found = json.loads(path.read_text())
    bits = [[500, 9.25], [1000, 8.0]]
    assert found["curve"] == [[update, loss * math.log(2)] for update, loss in bits]
    assert (found["perplexity"], found["seconds"]) == (pytest.approx(256), 120)


def test_the_table_shows_means_spread_and_commands(called, capsys):
    called("--rows", "none", "stock", "--seeds", "1", "2")
    capsys.readouterr()
    assert called("--table", "--seeds", "1", "2")[0] == 0
    said = capsys.readouterr().out
    assert "| none | 5.892 ± 0.490 | 384.0 ± 181.0 | 2,322,432 | 2.0 | 1, 2 |" in said
    assert "| stock |" in said
    assert "diet" not in said.split("```")[0]
    assert "roberta/run.py pretrain none --run none_roberta_machine_tiny_1000_seed1" in said


def test_the_curves_are_drawn(called, tmp_path):
    called("--rows", "none", "stock", "--seeds", "1", "2")
    assert called("--plot", str(tmp_path / "curves.png"))[0] == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_every_row_is_a_scheme_that_pretrain_knows():
    for row, (scheme, *options_) in results.ROWS.items():
        assert row.split(",")[0] == scheme
        assert scheme in (*SCHEMES, "stock")
        assert options_ in ([], ["--position-input", "learned"])


def test_a_cell_of_another_length_is_another_cell(called):
    given = ("--rows", "linformer")
    for more, named in (((), ""), (("--length", "512", "--batch", "8"), "batch8_length512_")):
        name = f"linformer_roberta_machine_tiny_1000_{named}seed1"
        assert called(*given, *more) == (0, [name])
        assert called(*given, *more) == (0, [])


def test_a_cell_of_other_options_of_fairseq_train_is_another_cell(called):
    called("--rows", "none")
    assert called("--rows", "none", "--lr", "0.5")[1] == [
        "none_roberta_machine_tiny_1000_seed1_lr_0.5"
    ]
