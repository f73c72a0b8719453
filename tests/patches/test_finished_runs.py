"""A run that has reached its own limit makes no further update when it is started again."""

import re

import pytest

from tests.support import commands
from tests.support.commands import TINY, run, slow


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


def files(folder):
    """Every file with its contents; what is written anew differs in its time, too."""
    paths = sorted(folder.glob("*.pt"))
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def updates(done):
    return len(re.findall(r"train_inner\W+\{", done.text))


LIMITS = {
    "--max-update 3": "3 updates are made, and --max-update is 3",
    "--max-epoch 1": "1 epoch is done, and --max-epoch is 1",
    "--stop-time-hours 1e-9": r"it has trained for [\d.e-]+ hours, and --stop-time-hours is 1e-09",
    "--lr 0.01,0.001 --stop-min-lr 0.005": "the learning rate is 0.001, and --stop-min-lr is 0.005",
    "--max-epoch 9 --patience 2 --lr 1e-30": ("2 validations are no better, and --patience is 2"),
}


FAST = ("--max-epoch 9 --patience 2 --lr 1e-30",)


@pytest.mark.parametrize("limit", [*FAST, *slow([one for one in LIMITS if one not in FAST])])
def test_a_finished_run_says_so_and_changes_nothing(limit, data, tmp_path):
    command = ("train", data, *TINY, *limit.split(), "--save-dir", tmp_path)
    assert run(*command).status == 0
    before = files(tmp_path)
    assert before
    again = run(*command)
    assert again.status == 0, again.err
    assert re.search(
        rf"this run is finished: {LIMITS[limit]}; to go on, move that limit", again.text
    )
    assert updates(again) == 0
    assert files(tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "more"),
    [
        ("--max-update 3", "--max-update 5"),
        pytest.param("--max-epoch 1", "--max-epoch 2", marks=pytest.mark.slow),
        pytest.param(
            "--max-epoch 9 --patience 2 --lr 1e-30",
            "--max-epoch 4 --patience 3 --lr 1e-30",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_larger_limit_goes_on(limit, more, data, tmp_path):
    assert run("train", data, *TINY, *limit.split(), "--save-dir", tmp_path).status == 0
    before = files(tmp_path)
    done = run("train", data, *TINY, *more.split(), "--save-dir", tmp_path)
    assert done.status == 0, done.err
    assert "finished" not in done.text
    assert updates(done) > 0
    assert files(tmp_path) != before


@pytest.mark.slow
def test_fine_tuning_does_not_count_what_its_start_was_trained_for(data, tmp_path):
    first = ("--max-update", 3, "--save-dir", tmp_path / "first")
    assert run("train", data, *TINY, *first).status == 0
    start = tmp_path / "first" / "checkpoint_last.pt"
    done = run("train", data, *TINY, "--max-update", 2, "--save-dir", tmp_path / "second",
               "--finetune-from-model", start)  # fmt: skip
    assert done.status == 0, done.err
    assert updates(done) == 2


@pytest.mark.slow
def test_patience_counts_the_validations_before_a_kill(data, tmp_path):
    """Killed after the first of two epochs without progress, it ends as if it had not been."""
    limits = ("--max-epoch", 9, "--patience", 3, "--lr", "1e-30", "--save-dir", tmp_path)
    assert run("train", data, *TINY, *limits, "--max-epoch", 2).status == 0
    done = run("train", data, *TINY, *limits)
    assert "finished" not in done.text
    assert re.findall(r'"epoch": (\d+), "valid_loss"', done.text) == ["3", "4"]
