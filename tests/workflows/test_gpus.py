"""GPUs are locked one by one, for as long as a command runs."""

import os
import subprocess
import sys

import pytest

from tests.workflows.conftest import EXAMPLES, script

pytestmark = pytest.mark.slow

SCRIPT = EXAMPLES / "scripts" / "with_gpus.py"
#: the part of PyTorch that counts devices, on a machine without any
TORCH = """
import os
class cuda:
    is_available = lambda: True
    device_count = lambda: len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
"""
SHOW = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); input()"


@pytest.fixture
def start(tmp_path):
    """A function that starts a command on a machine with four GPUs, until it reads a line."""
    processes = []
    (tmp_path / "torch.py").write_text(TORCH)

    def begin(number, **environment):
        base = {name: value for name, value in os.environ.items() if "JOB_ID" not in name}
        base |= {"TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
        base |= {"PYTHONPATH": f"{tmp_path}:{EXAMPLES.parent}"}
        process = subprocess.Popen(
            [sys.executable, SCRIPT, str(number), sys.executable, "-c", SHOW],
            env=base | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
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


@pytest.mark.parametrize("scheduler", [{}, {"SLURM_JOB_ID": "7"}])
def test_jobs_side_by_side_have_different_devices(start, scheduler):
    first, second = start(2, **scheduler), start(2, **scheduler)
    assert devices(first) | devices(second) == set("0123")


def test_a_job_waits_for_a_free_device(start):
    first = start(3)
    assert len(devices(first)) == 3
    second = start(2)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1)
    first.kill()  # and its locks are free
    first.wait()
    assert len(devices(second)) == 2


def test_a_job_that_takes_fewer_has_the_free_devices(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with_gpus = script("scripts/with_gpus")
    assert with_gpus.lock_gpus(1, ["0", "1", "2"], "") == ["0"]
    assert with_gpus.lock_gpus(3, ["0", "1", "2"], "", least=1) == ["1", "2"]


def test_more_gpus_than_there_are_is_refused(start):
    process = start(5)
    assert process.wait() == 1
    assert process.stderr.read() == (
        "error: gpus must be at most 4, the number of GPUs of this machine, but is 5: request more "
        "GPUs, or set gpus to 0 to use the CPU\n"
    )


def test_a_scheduler_s_devices_are_not_locked(start):
    first, second = (start(1, SLURM_JOB_ID="7", CUDA_VISIBLE_DEVICES="0") for _ in range(2))
    assert devices(first) == devices(second) == {"0"}


def test_no_gpu_hides_all_of_them(start):
    assert devices(start(0)) == {""}
