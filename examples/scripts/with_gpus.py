"""Run a command with some of this machine's free GPUs, or with none.

    python with_gpus.py 2 fairseq-train ...

A lock for each device, held until the command ends, keeps jobs side by side apart. Under a
scheduler such as Slurm the devices are those of its job, and a job that needs all of them locks
none.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

from diet_fairseq.errors import UserError, exit_with_one_line

SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "KUBERNETES_SERVICE_HOST")


def visible_devices() -> list[str]:
    """The devices of CUDA_VISIBLE_DEVICES, or else all that nvidia-smi lists."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [device for device in given.split(",") if device]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return re.findall(r"^GPU (\d+):", listed.stdout, re.MULTILINE)


def lock_gpus(number: int, devices: list[str], job: str, least: int | None = None) -> list[str]:
    """Wait for so many free devices, or at least ``least`` of them, and lock them.

    The locks pass to the program that follows.
    """
    while True:
        locks: dict[str, int] = {}
        for device in devices:
            path = f"{tempfile.gettempdir()}/diet_fairseq-gpu-{job}{device}.lock"
            lock = open_lock(path)
            os.set_inheritable(lock, True)
            with suppress(BlockingIOError):
                if len(locks) < number:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    locks[device] = lock
            if device not in locks:
                os.close(lock)
        if len(locks) >= (number if least is None else least):
            return list(locks)
        for lock in locks.values():  # too few: others may need them
            os.close(lock)
        time.sleep(5)


def open_lock(path: str) -> int:
    """A file that every user of the machine can lock."""
    with suppress(FileExistsError):
        new = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY)
        os.fchmod(new, 0o644)
        os.close(new)
    return os.open(path, os.O_RDONLY)


def count_cuda_devices() -> int:
    """The number of GPUs that PyTorch sees; another process counts them and frees its memory."""
    code = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    command = [sys.executable, "-c", code]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()[-1])


def reserve_gpus(number: int, least: int | None = None) -> int:
    """Show this many devices, or at least ``least``, to the programs that follow; their number.

    Raises:
        UserError: the machine or the scheduler's job has fewer devices, or PyTorch sees fewer
    """
    job = next((f"{os.environ[name]}-" for name in SCHEDULERS if name in os.environ), "")
    devices = visible_devices() if number else []
    if number > len(devices):
        owner = "the scheduler's job" if job else "this machine"
        raise UserError(
            f"gpus must be at most {len(devices)}, the number of GPUs of {owner}, but is {number}: "
            "request more GPUs, or set gpus to 0 to use the CPU"
        )
    if number and (not job or len(devices) > number):
        devices = lock_gpus(number, devices, job, least)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    if devices and (seen := count_cuda_devices()) < len(devices):
        raise UserError(
            f"PyTorch must see the GPUs of CUDA_VISIBLE_DEVICES, {','.join(devices)}, but sees "
            f"only {seen}: check with nvidia-smi that the driver runs, install PyTorch for CUDA, "
            "or set gpus to 0 to use the CPU"
        )
    return len(devices)


if __name__ == "__main__":
    with exit_with_one_line():
        reserve_gpus(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
