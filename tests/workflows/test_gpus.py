"""GPUs are locked one by one, for as long as a command runs."""

import os
import subprocess
import sys

import pytest

from tests.workflows.conftest import EXAMPLES

SCRIPT = EXAMPLES / "scripts" / "with_gpus.py"
SHOW = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); input()"


@pytest.fixture
def start(tmp_path):
    """A function that starts a command on a machine with four GPUs, until it reads a line."""
    processes = []

    def begin(number, **environment):
        base = {name: value for name, value in os.environ.items() if "JOB_ID" not in name}
        base |= {"TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
        process = subprocess.Popen(
            [sys.executable, SCRIPT, str(number), sys.executable, "-c", SHOW],
            env={name: value for name, value in (base | environment).items() if value is not None},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def devices(process):
    return set(process.stdout.readline().strip().split(","))


def test_jobs_side_by_side_have_different_devices(start):
    first, second = start(2), start(2)
    assert devices(first) | devices(second) == set("0123")


def test_a_job_waits_for_a_free_device(start):
    first = start(3)
    taken = devices(first)
    second = start(2)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1)
    first.kill()  # and its locks are free
    first.wait()
    assert len(devices(second)) == 2
    assert len(taken) == 3


def test_more_gpus_than_there_are_is_refused(start):
    process = start(5)
    assert process.wait() == 1
    assert process.stderr.read() == "error: gpus must be at most 4, this machine's, but is 5\n"


def test_a_scheduler_s_devices_are_not_locked(start):
    first, second = (start(1, SLURM_JOB_ID="7", CUDA_VISIBLE_DEVICES="0") for _ in range(2))
    assert devices(first) == devices(second) == {"0"}


def test_jobs_within_one_allocation_have_different_devices(start):
    first, second = (start(2, SLURM_JOB_ID="7") for _ in range(2))
    assert devices(first) | devices(second) == set("0123")


def test_a_device_counts_once_whatever_its_name_is(start, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho 'GPU 0: NVIDIA GeForce RTX 4070 Laptop GPU (UUID: GPU-1)'\n"
    )
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert devices(start(1, CUDA_VISIBLE_DEVICES=None, PATH=path)) == {"0"}
    assert "must be at most 1," in start(2, CUDA_VISIBLE_DEVICES=None, PATH=path).stderr.read()


def test_another_user_can_lock_a_device(start, tmp_path):
    first = start(4)
    assert devices(first) == set("0123")
    assert {oct(path.stat().st_mode & 0o777) for path in tmp_path.glob("*.lock")} == {"0o644"}


def test_no_gpu_hides_all_of_them(start):
    assert devices(start(0)) == {""}
