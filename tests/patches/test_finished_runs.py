"""A run that has reached --max-update makes no further update when it is started again."""

import re

import pytest

from tests.support.commands import TINY, run


def files(folder):
    """Every file with its contents; one that is written anew differs in its time, too."""
    paths = sorted(folder.glob("*.pt"))
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def updates(done):
    return len(re.findall(r"train_inner\W+\{", done.text))


def test_a_finished_run_changes_nothing_when_started_again(data, tmp_path):
    command = ("train", data, *TINY, "--max-update", 3, "--save-dir", tmp_path)
    assert run(*command).status == 0
    before = files(tmp_path)
    assert before
    again = run(*command)
    assert again.status == 0, again.err
    assert "Stopping training due to num_updates: 3 >= max_update: 3" in again.text
    assert updates(again) == 0
    assert files(tmp_path) == before


@pytest.mark.slow
def test_a_larger_limit_resumes_the_run(data, tmp_path):
    for limit in (3, 5):
        done = run("train", data, *TINY, "--max-update", limit, "--save-dir", tmp_path)
        assert done.status == 0, done.err
    assert updates(done) == 2


@pytest.mark.slow
def test_fine_tuning_does_not_count_the_updates_of_its_start(data, tmp_path):
    first = ("--max-update", 3, "--save-dir", tmp_path / "first")
    assert run("train", data, *TINY, *first).status == 0
    start = tmp_path / "first" / "checkpoint_last.pt"
    done = run("train", data, *TINY, "--max-update", 2, "--save-dir", tmp_path / "second",
               "--finetune-from-model", start)  # fmt: skip
    assert done.status == 0, done.err
    assert updates(done) == 2
