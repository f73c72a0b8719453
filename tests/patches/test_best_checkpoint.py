"""checkpoint_best.pt is the best of all validations, whether or not a save was due."""

import pickle
import re
from functools import partial

import pytest

from diet_fairseq.patches import loading
from tests.support import commands
from tests.support.commands import TINY, kill_on_call, run, two_ranks

EVERY = ("--max-update", 8, "--validate-interval-updates", 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


def best(folder):
    """Of the best checkpoint, its update and its score."""
    with open(folder / "checkpoint_best.pt", "rb") as file:
        state = loading.read(file, "cpu")
    return state["optimizer_history"][-1]["num_updates"], state["extra_state"]["val_loss"]


def validations(done, metric="loss"):
    """Update -> score, of all validations."""
    pattern = rf'"valid_{metric}": "([\d.]+)".*"valid_num_updates": "(\d+)"'
    return {int(update): float(score) for score, update in re.findall(pattern, done.text)}


@pytest.mark.parametrize(
    ("options", "choose", "metric"),
    [
        # from the second update on the rate is so large that the loss is many times as high
        (
            ("--lr", "5", "--lr-scheduler", "inverse_sqrt",
             "--warmup-init-lr", "1e-5", "--warmup-updates", "2"),
            min, "loss",
        ),
        pytest.param(
            ("--best-checkpoint-metric", "ppl", "--maximize-best-checkpoint-metric"), max, "ppl",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_the_best_validation_is_kept_where_no_save_was_due(options, choose, metric, data, tmp_path):
    done = run("train", data, *TINY, *EVERY, *options, "--save-dir", tmp_path,
               "--no-epoch-checkpoints")  # fmt: skip
    assert done.status == 0, done.err
    scores = validations(done, metric)
    assert len(scores) == 8
    expected = choose(scores, key=scores.get)
    assert expected not in (4, 8)  # where fairseq alone saves: at the end of an epoch
    assert best(tmp_path) == (expected, scores[expected])
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint_best.pt", "checkpoint_last.pt"
    ]  # fmt: skip


def test_a_best_checkpoint_is_written_once_where_a_save_was_due(data, tmp_path):
    done = run("train", data, *TINY, "--max-epoch", 1, "--save-dir", tmp_path)
    assert done.text.count("Preparing to save checkpoint") == 1


def test_nothing_is_saved_with_no_save(data, tmp_path):
    done = run("train", data, *TINY, *EVERY, "--no-save", "--save-dir", tmp_path)
    assert done.status == 0, done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_killed_while_it_keeps_its_best_ends_as_if_it_had_not_been(data, tmp_path):
    command = ("train", data, *TINY, *EVERY, "--save-interval-updates", 3, "--lr", "0.3")
    whole = run(*command, "--save-dir", tmp_path / "whole")
    assert whole.status == 0, whole.err
    for number in (1, 3):
        folder = tmp_path / str(number)
        killed = run(*command, "--save-dir", folder,
                     first=partial(kill_on_call, "os:replace", number))  # fmt: skip
        assert killed.status == -9
        assert run(*command, "--save-dir", folder).status == 0
        assert best(folder) == best(tmp_path / "whole")


def test_the_changed_program_can_be_sent_to_another_process():
    """As a run on several GPUs does."""
    import fairseq_cli.train

    from diet_fairseq.patches.program import Program

    sent = pickle.loads(pickle.dumps(Program(fairseq_cli.train.main)))
    assert sent.main is fairseq_cli.train.main


@pytest.mark.slow
def test_two_processes_keep_the_best_of_one(data, tmp_path):
    done, _ = two_ranks(data, tmp_path, *EVERY, "--lr", "0.3")
    scores = validations(done)
    assert len(scores) == 8
    expected = min(scores, key=scores.get)
    assert best(tmp_path) == (expected, scores[expected])
