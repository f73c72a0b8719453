"""A Slurm of one node on this machine, with its own folder, ports and keys."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

#: Debian's packages slurm-wlm and munge
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol")
#: Memory is enforced. The GPUs are any two devices: no driver knows them.
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
GresTypes=gpu
SlurmdParameters=config_overrides
MpiDefault=none
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=32000 Gres=gpu:2
PartitionName=main Nodes={host} Default=YES
"""


def find_obstacle() -> str | None:
    """The reason why Slurm can't be started here; None if it can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [name for name in PROGRAMS if not shutil.which(name, path=path)]:
        return f"needs slurm-wlm and munge, but lacks {', '.join(missing)}"
    if not find_spec("snakemake_executor_plugin_slurm"):
        return "needs the package snakemake-executor-plugin-slurm"
    return None if os.getuid() == 0 else "needs root, as slurmd does"


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


@contextmanager
def start_slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Start Slurm, and stop it at the end.

    Args:
        folder: empty, with a short path
    Yields:
        variables of the environment of its commands
    """
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir()
    host = socket.gethostname()
    config = CONFIG.format(host=host, ports=free_ports(2), user="root", folder=folder)
    (folder / "slurm.conf").write_text(config)
    (folder / "gres.conf").write_text(f"NodeName={host} Name=gpu File=/dev/tty[1-2]\n")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    # Snakemake's plugin calls srun without Slurm's variables.
    srun = folder / "bin" / "srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
    srun.chmod(0o755)
    environment = {
        "SLURM_CONF": f"{folder}/slurm.conf",
        "PATH": f"{folder}/bin:{os.environ['PATH']}:/usr/sbin:/sbin",
    }
    variables = os.environ | environment
    files = {"key-file": key, **{name: folder / f"munge.{name}" for name in ("socket",)}}
    files |= {f"{name}-file": folder / f"munge.{name}" for name in ("pid", "log", "seed")}
    munged = ["munged", "--force", "--foreground", *(f"--{k}={v}" for k, v in files.items())]
    commands = [munged, ["slurmctld", "-D", "-c"], ["slurmd", "-D"]]
    daemons: list[subprocess.Popen] = []
    try:
        for command in commands:
            daemons.append(
                subprocess.Popen(
                    command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
            if command is munged:
                wait_until(lambda: (folder / "munge.socket").exists())
        wait_until(lambda: "idle" in run(["sinfo", "-h", "-o", "%T"], variables))
        yield environment
    finally:
        run(["scancel", "--user", "root"], variables)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def run(command: list[str], environment: dict[str, str]) -> str:
    """What a command of Slurm prints."""
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def wait_until(is_ready, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_ready():
        assert time.monotonic() < end
        time.sleep(0.2)
