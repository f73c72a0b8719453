"""Two trainings don't write into one folder, and a killed one leaves no lock."""

import errno
import fcntl
import os
import signal
import stat
import time

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.patches import saving
from tests.support.commands import TINY, run

IN_USE = "--save-dir {} is in use by another training: wait until it ends, or give another folder"


@pytest.mark.slow
def test_a_second_training_is_refused_and_touches_nothing(data, tmp_path):
    half = tmp_path / "checkpoint_last.pt.tmp"  # the first training writes it now
    command = ("train", data, *TINY, "--max-update", 1, "--save-dir", tmp_path)
    with saving.lock_folder(str(tmp_path)):
        half.touch()
        second = run(*command)
    assert (second.status, second.last) == (1, f"error: {IN_USE.format(tmp_path)}")
    assert list(tmp_path.iterdir()) == [half]


def test_a_folder_is_free_when_its_training_ends_in_the_same_process(tmp_path):
    for _ in range(2):
        with saving.lock_folder(str(tmp_path)), pytest.raises(UserError, match="is in use"):
            saving.lock_folder(str(tmp_path)).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_goes_if_the_working_directory_changes(tmp_path, monkeypatch):
    """Hydra changes the directory."""
    monkeypatch.chdir(tmp_path)
    with saving.lock_folder("checkpoints"):
        assert (tmp_path / "checkpoints" / saving.LOCK_NAME).exists()
        monkeypatch.chdir("/")
    assert list((tmp_path / "checkpoints").iterdir()) == []


@pytest.mark.slow
def test_a_run_that_saves_nothing_needs_no_lock(data, tmp_path):
    with saving.lock_folder(str(tmp_path)):
        done = run("train", data, *TINY, "--max-update", 1, "--save-dir", tmp_path, "--no-save")
    assert done.status == 0, done.err


def test_the_workers_of_a_killed_run_hold_no_lock(tmp_path):
    """A worker that reads data may live some seconds longer than the process that started it."""
    reading, writing = os.pipe()
    killed = os.fork()
    if not killed:
        try:
            with saving.lock_folder(str(tmp_path)):
                worker = os.fork()
                if worker:
                    os.write(writing, str(worker).encode())
                time.sleep(60)
        finally:
            os._exit(0)
    worker = int(os.read(reading, 20))
    with pytest.raises(UserError), saving.lock_folder(str(tmp_path)):
        pass
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    with saving.lock_folder(str(tmp_path)):
        os.kill(worker, signal.SIGKILL)


def test_the_lock_is_one_that_nfs_passes_on_to_other_nodes(tmp_path, monkeypatch):
    """A regular file, open for writing."""
    flock, descriptors = fcntl.flock, []
    monkeypatch.setattr(
        fcntl, "flock", lambda lock, how: (descriptors.append(lock), flock(lock, how))
    )
    with saving.lock_folder(str(tmp_path)):
        [descriptor] = descriptors
        assert stat.S_ISREG(os.fstat(descriptor).st_mode)
        assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR


def test_a_lock_whose_file_has_been_removed_is_not_held(tmp_path, monkeypatch):
    """The holder removes the file after another training has opened it and before it locks it."""
    flock = fcntl.flock
    removals = [lambda: (tmp_path / saving.LOCK_NAME).unlink(), lambda: None]

    def slow_flock(lock, how):
        removals.pop(0)()
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", slow_flock)
    with (
        saving.lock_folder(str(tmp_path)),
        open(tmp_path / saving.LOCK_NAME, "r+") as file,
        pytest.raises(BlockingIOError),
    ):
        flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_file_system_without_locks_is_reported(tmp_path, monkeypatch, caplog):
    def flock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with saving.lock_folder(str(tmp_path)):
        pass
    assert f"{tmp_path} can't be locked (No locks available): make sure" in caplog.text
