"""A killed training resumes and ends as if it had not been killed, whatever the moment."""

from functools import partial

import pytest

from tests.support.commands import (
    TINY,
    assert_same_tensors,
    kill_on_call,
    log_lines,
    run,
)

TRAIN = (
    *TINY, "--max-epoch", "2", "--save-interval-updates", "2", "--keep-interval-updates", "1",
    "--train-subset", "train", "--criterion", "label_smoothed_cross_entropy",
)  # fmt: skip


def losses(done):
    """(epoch, train, valid, updates) that training ends with."""
    last = {key: value for line in log_lines(done)[-4:] for key, value in line.items()}
    return last["epoch"], last["train_loss"], last["valid_loss"], last["valid_num_updates"]


@pytest.fixture(scope="module")
def uninterrupted(data, tmp_path_factory):
    """The folder and the losses of a run that nobody killed."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    return folder, losses(run("train", data, *TRAIN, "--save-dir", folder))


# Each save writes a file, copies it to checkpoint_best.pt and checkpoint_last.pt, and removes the
# file that is one too many: at updates 2, 4 (the end of the first epoch), 6 and 8.
MOMENTS = {
    "in training": ("fairseq.trainer:Trainer.train_step", 8),
    "before anything is written": ("torch:save", 2),
    "before the file has its name": ("os:replace", 4),
    "in the copy": ("shutil:copyfileobj", 4),
    "before old files are removed": ("os:remove", 2),  # the first is fairseq's dummy
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_resumes_and_ends_as_if_uninterrupted(moment, data, uninterrupted, tmp_path):
    killed = run("train", data, *TRAIN, "--save-dir", tmp_path,
                 first=partial(kill_on_call, *MOMENTS[moment]))  # fmt: skip
    assert killed.status == -9, killed.err
    resumed = run("train", data, *TRAIN, "--save-dir", tmp_path)
    assert losses(resumed) == uninterrupted[1]
    assert "Loaded checkpoint" in resumed.text
    assert_same_tensors(tmp_path, uninterrupted[0])
    assert not list(tmp_path.glob("*.tmp"))
