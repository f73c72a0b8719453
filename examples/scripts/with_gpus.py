"""Run a command with some of this machine's free GPUs, or with none.

    python with_gpus.py 2 fairseq-train ...

A lock for each device, held until the command ends, keeps jobs side by side apart. Under a
scheduler such as Slurm, which gives each job its own devices, nothing is locked.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "KUBERNETES_SERVICE_HOST")


def lock_gpus(number: int) -> list[str]:
    """Wait for so many free devices and lock them; the locks pass to the program that follows."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
        given = ",".join(map(str, range(listed.stdout.count("GPU "))))
    devices = [device for device in given.split(",") if device]
    if number > len(devices):
        sys.exit(f"error: gpus must be at most {len(devices)}, this machine's, but is {number}")
    while True:
        locks: dict[str, int] = {}
        for device in devices:
            path = f"{tempfile.gettempdir()}/diet_fairseq-gpu-{device}.lock"
            lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
            os.set_inheritable(lock, True)
            with suppress(BlockingIOError):
                if len(locks) < number:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    locks[device] = lock
            if device not in locks:
                os.close(lock)
        if len(locks) == number:
            return list(locks)
        for lock in locks.values():  # too few: others may need them
            os.close(lock)
        time.sleep(5)


if __name__ == "__main__":
    number, command = int(sys.argv[1]), sys.argv[2:]
    if number == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif not any(name in os.environ for name in SCHEDULERS):
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(lock_gpus(number))
    os.execvp(command[0], command)
