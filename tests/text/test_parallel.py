"""Work in several processes has the results of one, and leaves none of them behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diet_fairseq.text import parallel

#: its workers print their process ids and work on; their end must print nothing
AT_WORK = """
import os, sys, time
from diet_fairseq.interrupts import interruptible
from diet_fairseq.text import parallel

def work(lines, pids):
    with open(pids, "a") as file:
        print(os.getpid(), file=file)
    time.sleep(600)

lines = "a" * 2 * parallel.CHUNK
with interruptible(lambda: "run the same command to continue"):
    list(parallel.map_lines(work, lines, sys.argv[1], workers=2))
"""


def numbered(lines: list[str], mark: str) -> list[str]:
    return [f"{mark}{line}" for line in lines]


@pytest.mark.parametrize("workers", [1, 3])
def test_results_are_in_order_with_any_number_of_workers(workers):
    lines = range(4 * parallel.CHUNK + 1)
    results = parallel.map_lines(numbered, map(str, lines), ">", workers=workers)
    assert list(results) == [f">{number}" for number in lines]


def test_a_command_that_is_terminated_leaves_no_worker_behind(tmp_path: Path):
    (tmp_path / "command.py").write_text(AT_WORK)
    pids = tmp_path / "pids"
    words = [sys.executable, tmp_path / "command.py", pids]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            end = time.monotonic() + 60
            while not (pids.exists() and pids.read_text().count("\n") == 2):
                assert time.monotonic() < end
                time.sleep(0.05)
            process.terminate()
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert err == "interrupted: run the same command to continue\n"
    for pid in map(int, pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
