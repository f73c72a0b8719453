"""Processes of a run on several GPUs, started by fairseq or by Slurm, without a GPU or Slurm."""

import os
import re

import pytest
import torch
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.distributed import utils as distributed
from omegaconf import OmegaConf
from torch.multiprocessing import ProcessExitedException

from diet_fairseq.errors import UserError
from diet_fairseq.patches.processes import spawn_processes


@pytest.fixture
def infer(tmp_path, monkeypatch):
    """A function that infers the processes of a run on two GPUs, by variables of Slurm."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho first\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)

    def configure(**variables):
        job = {"JOB_ID": 7, "JOB_NODELIST": "first", "NNODES": 1, "JOB_NUM_NODES": 1}
        for name, value in (job | variables).items():
            monkeypatch.setenv(f"SLURM_{name}", str(value))
        cfg = OmegaConf.structured(DistributedTrainingConfig(distributed_world_size=2, tpu=False))
        distributed.infer_init_method(cfg)
        return cfg

    return configure


@pytest.mark.parametrize("tasks", [{}, {"NTASKS": 8}, {"NTASKS": 2}, {"NTASKS_PER_NODE": 4}])
def test_a_batch_script_without_srun_trains_on_its_gpus(infer, tasks):
    cfg = infer(**tasks)
    assert cfg.distributed_init_method.startswith("tcp://localhost:")
    assert (cfg.distributed_world_size, cfg.distributed_num_procs) == (2, 2)
    assert (cfg.distributed_rank, cfg.distributed_no_spawn) == (0, False)


def test_srun_starts_a_task_for_each_gpu_of_several_nodes(infer):
    cfg = infer(
        NNODES=2, JOB_NUM_NODES=2, STEP_NUM_NODES=2, STEP_NUM_TASKS=4, NTASKS_PER_NODE=2,
        PROCID=3, LOCALID=1, NODEID=1,
    )  # fmt: skip
    assert (cfg.distributed_rank, cfg.distributed_world_size, cfg.device_id) == (3, 4, 1)
    assert cfg.distributed_no_spawn
    assert cfg.distributed_init_method == "tcp://first:10007"


def test_one_task_of_srun_has_all_gpus_of_its_node(infer):
    step = {"STEP_NUM_NODES": 1, "STEP_NUM_TASKS": 1, "NODEID": 0, "PROCID": 0, "LOCALID": 0}
    cfg = infer(NTASKS=8, NTASKS_PER_NODE=8, **step)  # the job's tasks
    assert (cfg.distributed_rank, cfg.distributed_world_size) == (0, 2)
    assert not cfg.distributed_no_spawn


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"NNODES": 2, "JOB_NUM_NODES": 2},
            "fairseq-train has started on one of the 2 nodes of this Slurm job: put srun before it",
        ),
        (
            {"STEP_NUM_NODES": 1, "STEP_NUM_TASKS": 8},
            "one task for each GPU, 2 on each node, or one for each node, but starts 8 tasks on 1",
        ),
    ],
)
def test_tasks_that_can_not_train_together_are_refused(infer, variables, message):
    with pytest.raises(UserError, match=re.escape(message)):
        infer(**variables)


def kill(*args, **kwargs):
    raise ProcessExitedException(
        "process 1 terminated", error_index=1, error_pid=7, exit_code=-9, signal_name="SIGKILL"
    )


@pytest.mark.parametrize(
    ("spawn", "processes", "message"),
    [
        (kill, 2, "process 1 of 2 was ended from outside by SIGKILL, and the others have been"),
        (print, 0, "PyTorch must see a CUDA device to train on several, but sees none"),
    ],
)
def test_processes_that_do_not_train_are_an_error(spawn, processes, message):
    with pytest.raises(UserError, match=message):
        spawn_processes(spawn, fn=print, nprocs=processes)


def test_fairseq_starts_its_processes_so():
    with pytest.raises(UserError, match="sees none"):
        distributed.torch.multiprocessing.spawn(fn=print, args=(), nprocs=0, join=True)
