"""A checkpoint is complete or absent, and training that can't save doesn't begin."""

import errno
import os
import resource
import signal

import pytest
import torch
from fairseq import checkpoint_utils

from diet_fairseq.errors import UserError
from diet_fairseq.files import atomic_file
from diet_fairseq.patches import saving
from tests.support.commands import TINY, run

pytestmark = pytest.mark.slow

NOW = (*TINY, "--max-update", "2", "--disable-validation")
ADVICE = (
    "free some space or name another place (checkpoints: --save-dir); existing files are unchanged"
)


def small_disk(size):
    """Limit the size of this process's files, as a full disk does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def full_disk():
    def fsync(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.fsync = fsync


@pytest.fixture
def limited():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield small_disk
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def save(value, path):
    checkpoint_utils.torch_persistent_save(value, path)


def copy(source, target):
    checkpoint_utils.PathManager.copy(source, target)


@pytest.mark.parametrize("write", [save, copy])
def test_a_failing_write_leaves_the_old_file(write, limited, tmp_path):
    target, source = tmp_path / "a.pt", tmp_path / "b.pt"
    save({"old": 1}, str(target))
    save(torch.zeros(50_000), str(source))
    before = target.read_bytes()
    limited(10_000)
    with pytest.raises(UserError) as error:
        write(torch.zeros(50_000) if write is save else str(source), str(target))
    assert str(error.value) == f"{target} can't be written: File too large; {ADVICE}"
    assert target.read_bytes() == before
    assert not list(tmp_path.glob("*.tmp"))


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    target = tmp_path / "a.pt"
    target.write_text("old")

    def interrupted():
        with atomic_file(target, "wb") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.pt"]


def test_a_file_is_on_the_disk_before_it_is_renamed(tmp_path, monkeypatch):
    calls = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("sync"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda *a: (calls.append("rename"), replace(*a)))
    save({}, str(tmp_path / "a.pt"))
    assert calls == ["sync", "rename", "sync"]  # the file, its name, the folder


def test_a_lock_removes_only_leftovers_of_killed_saves(tmp_path):
    for name in ("dummy", "notes.tmp", "checkpoint_last.pt", "checkpoint_last.pt.tmp"):
        (tmp_path / name).write_text(name)
    with saving.lock_folder(str(tmp_path)):
        pass
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_last.pt", "dummy", "notes.tmp"]
    assert (tmp_path / "dummy").read_text() == "dummy"


def test_training_on_a_full_disk_ends_at_once(data, tmp_path):
    done = run("train", data, *NOW, "--save-dir", tmp_path, first=full_disk)
    assert done.status == 1
    path = tmp_path / "checkpoint_last.pt"
    assert done.last == (f"error: {path} can't be written: No space left on device; {ADVICE}")
    assert os.listdir(tmp_path) == []


def test_asynchronous_writing_is_fairseq_s_own():
    calls = []
    saving.save_completely(lambda *args: calls.append(args), {}, "x.pt", async_write=True)
    assert calls == [({}, "x.pt", True)]


def test_training_does_not_begin_where_it_can_not_save(data, tmp_path):
    (tmp_path / "file").touch()
    done = run("train", data, *NOW, "--save-dir", tmp_path / "file" / "save")
    assert done.status == 1
    assert done.last == (
        f"error: --save-dir {tmp_path}/file/save can't be written to: Not a directory; give "
        "another folder"
    )
    assert "num. shared model params" not in done.text


@pytest.mark.parametrize("keep", [20, 2])
def test_updates_at_the_end_of_an_epoch_are_saved_like_others(data, tmp_path, keep):
    """Otherwise, without checkpoints of epochs, an average would take an older one."""
    done = run("train", data, *TINY, "--batch-size", 20, "--max-tokens", 1000, "--max-update", 10,
               "--save-interval-updates", 1, "--keep-interval-updates", keep,
               "--no-epoch-checkpoints", "--disable-validation",
               "--save-dir", tmp_path)  # fmt: skip
    assert done.status == 0, done.err
    names = sorted(path.stem for path in tmp_path.glob("checkpoint_*_*.pt"))
    expected = [f"checkpoint_{1 + (update > 5)}_{update}" for update in range(1, 11)]  # 5 an epoch
    assert names == sorted(expected[-keep:])
