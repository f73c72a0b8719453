"""`tools/gpu.sh` measures on a GPU in parts; each part runs on a CPU, too."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.pages import ROOT


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", ROOT / "tools/gpu.sh", *arguments],
        env=os.environ | {"PYTHON": sys.executable, "DEVICE": "cpu"} | variables,
        capture_output=True,
        text=True,
        timeout=550,
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "error"),
    [
        (["5"], {"OUT": "x"}, "there is no part 5; the parts are kernels, schemes, dropout"),
        (["steps"], {"OUT": ""}, "OUT must name the folder for the figures"),
        (["convergence"], {"OUT": "x", "DATA": "nowhere"}, "/nowhere has no folder data-bin"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(arguments, variables, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments, **variables)
    assert done.returncode == 2
    assert error in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_kernels_part_times_both_passes_and_every_kernel(tmp_path):
    done = run("kernels", OUT=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "kernels.jsonl").read_text().splitlines()]
    assert {"cuDNN, score", "offsets", "offsets, backward_queries_and_line"} <= {
        row["row"] for row in rows
    }
    assert all(row["ms"] > 0 for row in rows)
    assert all(row["error"] < 1e-5 for row in rows if "error" in row)


@pytest.mark.slow
def test_a_part_that_is_out_of_time_says_what_it_did_not_start(tmp_path):
    done = run("steps", OUT=str(tmp_path), MINUTES="0")
    assert done.returncode == 124
    assert "not started, no time left" in (tmp_path / "steps.md").read_text()


@pytest.mark.slow
def test_the_schemes_part_compares_kernels_and_then_times_them_beside_none(tmp_path):
    done = run("schemes", OUT=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in (tmp_path / "schemes.log").read_text()
    rows = [
        json.loads(line)["row"] for line in (tmp_path / "schemes.jsonl").read_text().splitlines()
    ]
    assert rows[0] == "none, sdpa"
    assert {"shaw, sdpa", "diet_abs, factors", "diet_abs, sdpa"} <= {*rows}


@pytest.mark.slow
def test_the_dropout_part_compares_kernels_and_then_times_steps_with_and_without_it(tmp_path):
    done = run("dropout", OUT=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in (tmp_path / "dropout.log").read_text()
    rows = [json.loads(line) for line in (tmp_path / "dropout.jsonl").read_text().splitlines()]
    assert {(row["row"], row["attention dropout"]) for row in rows} >= {
        (f"{scheme}, sdpa", rate) for scheme in ("none", "t5") for rate in (0.0, 0.1)
    }
