"""`tools/gpu.sh` measures on a GPU in parts; each part runs on a CPU, too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import commands

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", ROOT / "tools/gpu.sh", *arguments],
        env=os.environ | {"PYTHON": sys.executable, "DEVICE": "cpu"} | variables,
        capture_output=True,
        text=True,
        timeout=550,
    )


def test_the_script_parses():
    assert not subprocess.run(["bash", "-n", ROOT / "tools/gpu.sh"], capture_output=True).returncode


@pytest.mark.parametrize(
    ("arguments", "variables", "error"),
    [
        ([], {"OUT": "x"}, "name a part: tests, speed, step, training"),
        (["5"], {"OUT": "x"}, "there is no part 5: take one of tests, speed, step, training"),
        (["speed"], {"OUT": ""}, "OUT must name the folder for the figures"),
        (["speed"], {"OUT": "x", "DEVICE": "tpu"}, "DEVICE must be cuda or cpu, but is tpu"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_written(
    arguments, variables, error, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments, **variables)
    assert done.returncode == 2
    assert error in done.stderr
    assert not list(tmp_path.iterdir())


def test_missing_packages_are_named_with_what_to_do(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    done = run("speed", OUT=str(tmp_path), PYTHON=str(bare))
    assert done.returncode == 2
    assert "torch (ModuleNotFoundError: " in done.stderr
    assert "put them into the folder WHEELS" in done.stderr


@pytest.mark.slow
def test_the_speed_part_writes_calls_steps_and_kernels(tmp_path):
    done = run("speed", OUT=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| diet_rel | training |" in (tmp_path / "attention.md").read_text()
    assert "| diet_rel, offsets |" in (tmp_path / "step.md").read_text()
    kernels = json.loads((tmp_path / "kernels-tiny-8.json").read_text())
    assert any("softmax" in kernel for kernel in kernels["none, reference"])


@pytest.mark.slow
def test_the_tests_part_rehearses_the_tests_of_attention(tmp_path):
    done = run("tests", OUT=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in (tmp_path / "kernels.log").read_text()


@pytest.mark.slow
def test_the_step_part_compares_trainers(tmp_path):
    done = run("step", OUT=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| none, sdpa, fused_adamw |" in (tmp_path / "trainers.md").read_text()


@pytest.mark.slow
def test_the_training_part_trains_every_row(tmp_path):
    variables = {"ROWS": "none t5", "OPTIONS": "--max-update 2 --lr 0.001"}
    variables |= {"DATA": str(commands.corpus(tmp_path)), "RUNS": str(tmp_path / "runs")}
    done = run("training", OUT=str(tmp_path), **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = (tmp_path / "training.txt").read_text().splitlines()
    assert [row.split()[0] for row in rows] == ["none", "t5"]
    assert all('"valid_loss"' in row for row in rows)


@pytest.mark.slow
def test_a_part_that_is_out_of_time_says_what_it_did_not_start(tmp_path):
    done = run("speed", OUT=str(tmp_path), MINUTES="0")
    assert done.returncode == 124
    assert "not started, no time left" in (tmp_path / "step.md").read_text()
