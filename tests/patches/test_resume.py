"""Training that was killed, at whatever moment, resumes and ends as if it had not been."""

import json
import random
import re
from functools import partial

import pytest
import torch

from diet_fairseq import checkpoints
from tests.support import commands
from tests.support.commands import TINY, cut_copies, kill_on_call, run, slow, two_ranks

TRAIN = (
    *TINY, "--max-epoch", "2", "--save-interval-updates", "2", "--keep-interval-updates", "1",
    "--train-subset", "train", "--criterion", "label_smoothed_cross_entropy",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


def losses(done):
    """The losses that training ends with: (epoch, train, valid) of the last epoch."""
    lines = [json.loads(text) for text in re.findall(r"\{\"epoch\".*\}", done.text)]
    last = {key: value for line in lines[-4:] for key, value in line.items()}
    return last["epoch"], last["train_loss"], last["valid_loss"], last["valid_num_updates"]


def parameters(folder):
    with open(folder / "checkpoint_last.pt", "rb") as file:
        state = checkpoints.read(file, "cpu")
    moments = state["last_optimizer_state"]["state"]
    return {**state["model"], **{f"{n}.{k}": v for n, m in moments.items() for k, v in m.items()}}


@pytest.fixture(scope="module")
def whole(data):
    """A run that nobody killed: (its losses, its parameters and Adam's moments)."""
    folder = data.parent / "whole"
    done = run("train", data, *TRAIN, "--save-dir", folder)
    assert done.status == 0, done.err
    return losses(done), parameters(folder)


def assert_equal(run_, folder, whole):
    assert losses(run_) == whole[0]
    final = parameters(folder)
    assert final.keys() == whole[1].keys()
    for name, value in final.items():
        equal = (
            torch.equal(value, whole[1][name])
            if torch.is_tensor(value)
            else (value == whole[1][name])
        )
        assert equal, name


# Each save writes a file, copies it to checkpoint_best.pt and checkpoint_last.pt, and removes the
# file that is one too many: at updates 2, 4 (the end of the first epoch), 6 and 8.
MOMENTS = {
    "in training": ("fairseq.trainer:Trainer.train_step", 8),
    "before anything is written": ("torch:save", 2),
    "before the file is on the disk": ("os:fsync", 7),
    "before the file has its name": ("os:replace", 4),
    "in the copy": ("shutil:copyfileobj", 4),
    "before the copy has its name": ("os:replace", 9),
    "before old files are removed": ("os:remove", 2),  # the first is fairseq's dummy
}
FAST = ("in the copy",)


@pytest.mark.parametrize("moment", [*FAST, *slow([m for m in MOMENTS if m not in FAST])])
def test_a_kill_changes_nothing_in_the_end(moment, data, whole, tmp_path):
    killed = run("train", data, *TRAIN, "--save-dir", tmp_path,
                 first=partial(kill_on_call, *MOMENTS[moment]))  # fmt: skip
    assert killed.status == -9, killed.err
    resumed = run("train", data, *TRAIN, "--save-dir", tmp_path)
    assert resumed.status == 0, resumed.err
    assert "Loaded checkpoint" in resumed.text
    assert_equal(resumed, tmp_path, whole)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_cut_copy_is_what_fairseq_alone_leaves(data, tmp_path):
    """The control: killed in the copy, stock fairseq has a checkpoint_last.pt that is cut."""
    killed = run("train", data, *TRAIN, "--save-dir", tmp_path, plugin=False, first=cut_copies)
    assert killed.status == -9
    done = run("train", data, *TRAIN, "--save-dir", tmp_path)
    last = tmp_path / "checkpoint_last.pt"
    assert done.last == (
        f"error: {last} is not a checkpoint, or is truncated or damaged: give another, or train "
        "again"
    )


@pytest.mark.slow
def test_kills_at_random_moments_change_nothing_in_the_end(data, whole, tmp_path):
    """As often as it takes until one run gets through."""
    draw = random.Random(1)
    for _ in range(30):
        done = run("train", data, *TRAIN, "--save-dir", tmp_path, limit=draw.uniform(1, 4))
        if done.status == 0:
            break
        assert done.status == -9, done.err
    done = run("train", data, *TRAIN, "--save-dir", tmp_path)
    assert done.status == 0
    final = parameters(tmp_path)
    assert all(torch.equal(final[n], v) for n, v in whole[1].items() if torch.is_tensor(v))


@pytest.mark.slow
def test_two_processes_resume(data, tmp_path):
    for updates in (2, 4):
        first, second = two_ranks(data, tmp_path / "resumed", "--max-update", updates)
        assert (first.status, second.status) == (0, 0), first.err + second.err
    assert "Loaded checkpoint" in first.text
    first, second = two_ranks(data, tmp_path / "whole", "--max-update", 4)
    assert (first.status, second.status) == (0, 0), first.err + second.err
    resumed, in_one = parameters(tmp_path / "resumed"), parameters(tmp_path / "whole")
    assert all(torch.equal(v, in_one[n]) for n, v in resumed.items() if torch.is_tensor(v))
