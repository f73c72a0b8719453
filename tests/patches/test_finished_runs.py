"""A run that has reached its own limit makes no further update when it is started again."""

import re
from types import SimpleNamespace

import pytest

from diet_fairseq.patches import limits
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


@pytest.mark.parametrize(
    ("done", "limit"),
    [
        ({"updates": 3}, {"max_update": 3}),
        ({"epochs": 2}, {"max_epoch": 2}),
        ({"stalled": 2}, {"patience": 2}),
        ({"rate": 0.5}, {"stop_min_lr": 0.5}),
    ],
)
def test_a_limit_is_reached_where_a_run_stands_exactly_at_it(done, limit):
    assert reached(done, limit)
    [(name, value)] = limit.items()
    further = {name: value / 2 if name == "stop_min_lr" else value + 1}
    assert not reached(done, further)


def test_the_last_moment_of_its_hours_is_a_run_s_own():
    """fairseq stops a run once it has trained for longer."""
    assert not reached({"hours": 2.0}, {"stop_time_hours": 2.0})
    assert reached({"hours": 2.1}, {"stop_time_hours": 2.0})


def reached(done, limit):
    """The limit that a run has reached which has done so much."""
    given = {"max_update": 0, "max_epoch": 0, "stop_time_hours": 0, "stop_min_lr": -1.0}
    options = SimpleNamespace(**{**given, "patience": -1, **limit})
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(optimization=options, checkpoint=options),
        early_stop={"num_runs": done.get("stalled", 0)},
        get_num_updates=lambda: done.get("updates", 1),
        get_lr=lambda: done.get("rate", 1.0),
        cumulative_training_time=lambda: 3600 * done.get("hours", 0.0),
    )
    return limits.reached(trainer, done.get("epochs", 0))


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
