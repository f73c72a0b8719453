"""Ctrl-C ends a command with status 130 and one line that says how to continue."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def started(command, folder):
    """A program that leads a group of its own, as one that a terminal starts."""
    with open(folder / "log", "w") as log:
        return subprocess.Popen(
            list(map(str, command)),
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=ROOT,
            # as a terminal starts it: a shell's background jobs ignore Ctrl-C, and so do theirs
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )


def interrupted(process, log, when, limit=120):
    """The program's status and what it said, interrupted with all its children at that line."""
    end = time.monotonic() + limit
    while not re.search(when, log.read_text()) and time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    return process.wait(limit), log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_preparation_goes_on(tmp_path, workers):
    from tests.support.road import corpus

    texts = corpus(tmp_path / "texts", train=60_000, odd=False)
    command = [sys.executable, EXAMPLES / "wmt18/run.py", "prepare", "en", "de", "--from-dir"]
    command += [texts, "--folder", tmp_path / "out", "--bpe", "subword-nmt"]
    command += ["--workers", workers, "--vocabulary", 100]
    status, said = interrupted(
        started(command, tmp_path), tmp_path / "log", r"(subwords|encoded): working"
    )
    assert (status, said.splitlines()[-1]) == (
        130, "interrupted: run the same command to continue"
    )  # fmt: skip
    assert "Traceback" not in said
