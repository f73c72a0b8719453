"""A workflow on a real Slurm of one node: a time limit, too little memory, unseen GPUs."""

import os
import re
import signal
import tempfile
from pathlib import Path

import pytest
import yaml

from tests.support.slurm import find_obstacle, run, start_slurm, wait_until
from tests.workflows.conftest import EXAMPLES, Experiment, copy_without
from tests.workflows.test_runs import assert_same

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle() or ""),
]


@pytest.fixture
def slurm():
    """Variables of the environment for commands of Slurm."""
    with tempfile.TemporaryDirectory() as folder, start_slurm(Path(folder)) as environment:
        yield environment


def write_profile(folder, **resources):
    """The profile for Slurm as a site changes it; `resources` are a training's."""
    profile = yaml.safe_load((EXAMPLES / "profiles/slurm/config.yaml").read_text())
    profile["set-resources"] = {"train": resources}
    profile["default-resources"]["slurm_partition"] = "main"
    profile |= {
        "slurm-no-account": True, "slurm-status-command": "squeue",
        "slurm-init-seconds-before-status-checks": 2, "latency-wait": 10,
    }  # fmt: skip
    (folder / "profile").mkdir()
    (folder / "profile" / "config.yaml").write_text(yaml.safe_dump(profile))


def start(experiment, environment, *words):
    """Snakemake on the cluster, until the trainings have ended."""
    experiment.environment |= environment
    return experiment.start("--profile", "profile", "--until", "train", *words)


def end_at_time_limit(experiment, environment):
    """Stop a training after its first checkpoint, and let the time of its job run out."""
    pattern = "out/runs/*-s1-*/checkpoint_last.pt"
    wait_until(lambda: [*experiment.folder.glob(pattern)], 300)
    trainings = [  # and the workers that read their data
        path.parent
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if "fairseq-train\0out/data-bin\0" in (command := path.read_text())
        and "-s1-" in command
        and "train.py" not in command
        and (path.parent / "cwd").readlink() == experiment.folder
    ]
    process = min(trainings, key=lambda path: int(path.name))
    os.kill(int(process.name), signal.SIGSTOP)
    [job] = re.findall(r"\0SLURM_JOB_ID=(\d+)\0", (process / "environ").read_text())
    run(["scontrol", "update", f"JobId={job}", "EndTime=now+1"], os.environ | environment)
    return job


def test_a_training_resumes_after_its_time_limit_and_the_reasons_of_failures_are_named(
    prepared, finished, slurm, tmp_path
):
    blind = Experiment(copy_without(prepared, tmp_path / "blind"), gpus=2)
    small = Experiment(copy_without(prepared, tmp_path / "small"), gpus=0)
    prepared.configure(seeds=[1, 2], gpus=0)
    write_profile(prepared.folder, mem_mb=3000, runtime=10)
    write_profile(blind.folder, mem_mb=3000)
    write_profile(small.folder, mem_mb=700)
    processes = {
        "resumed": start(prepared, slurm),
        "blind": start(blind, slurm, "--retries", 0),
        "small": start(small, slurm, "--retries", 0),
    }
    job = end_at_time_limit(prepared, slurm)
    outputs = {name: process.communicate(timeout=600)[0] for name, process in processes.items()}

    assert processes["resumed"].returncode == 0, outputs["resumed"]
    assert re.search(
        rf"\nerror: Slurm ended job {job} with the status TIMEOUT \(.* DUE TO TIME LIMIT\): see "
        r"Slurm's log\nthe step runs again:\n",
        outputs["resumed"],
    ), outputs["resumed"]
    for seed in (1, 2):
        checkpoint = f"out/runs/*-s{seed}-*/checkpoint_last.pt"
        assert_same(prepared.path(checkpoint), finished.path(checkpoint))
    log = prepared.path("out/runs/*-s1-*/fairseq-train.log").read_text()
    assert "Loaded checkpoint" in log

    last = outputs["blind"].splitlines()[-1]
    assert last.startswith("error: PyTorch must see the GPUs of CUDA_VISIBLE_DEVICES, 0,1, but")
    last = outputs["small"].splitlines()[-1]
    assert re.fullmatch(
        r"error: Slurm ended job \d+ with the status [A-Z_]+ \(.*exceeded.* memory limit.*\): see "
        "Slurm's log",
        last,
        re.IGNORECASE,
    )
