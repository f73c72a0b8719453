"""A run that has reached --max-update makes no further update when it is started again."""

import re
import socket
import subprocess
import sys

import pytest

from tests.support.commands import PLUGIN, TINY, Done, run

pytestmark = pytest.mark.slow


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


#: fairseq starts one process for each GPU, and sends each the function to call
ON_TWO_GPUS = """
import sys
import torch
from fairseq_cli.train import cli_main

if __name__ == "__main__":
    torch.cuda.device_count = lambda: 2
    sys.exit(cli_main())
"""


def test_processes_that_fairseq_starts_make_no_further_update_either(data, tmp_path):
    (tmp_path / "train.py").write_text(ON_TWO_GPUS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, tmp_path / "train.py", data, *TINY, *PLUGIN, "--max-update", "2",
               "--save-dir", tmp_path / "run", "--distributed-world-size", "2",
               "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp",
               "--distributed-init-method", f"tcp://127.0.0.1:{port}"]  # fmt: skip
    for message in ("Saved checkpoint", "Stopping training due to num_updates: 2 >="):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        assert message in done.stdout + done.stderr
    assert updates(Done(0, done.stdout, done.stderr)) == 0


def test_fine_tuning_does_not_count_the_updates_of_its_start(data, tmp_path):
    first = ("--max-update", 3, "--save-dir", tmp_path / "first")
    assert run("train", data, *TINY, *first).status == 0
    start = tmp_path / "first" / "checkpoint_last.pt"
    done = run("train", data, *TINY, "--max-update", 2, "--save-dir", tmp_path / "second",
               "--finetune-from-model", start)  # fmt: skip
    assert done.status == 0, done.err
    assert updates(done) == 2
