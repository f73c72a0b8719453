"""Processes of a run on several GPUs: how Slurm starts them, and the report if one is killed."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing import ProcessExitedException

from ..errors import UserError
from .patch import intercepts


@intercepts(
    "fairseq.distributed.utils:_infer_slurm_init",
    compatibility="Slurm: in a batch script without srun, a run on several GPUs ends in a TypeError"
    " or an AssertionError, or waits for ever for tasks that nobody starts; with srun on several "
    "nodes it needs --distributed-port",
)
def infer_slurm_tasks(infer_slurm_init: Callable, cfg: Any, num_pipelines_per_node: Any) -> bool:
    """Take the number of processes from the step that srun has started, not from the job.

    Without srun, a batch script runs on the first node only, and fairseq starts a process for each
    GPU itself.

    Returns:
        whether srun has started this process
    Raises:
        UserError: the job has several nodes and no srun, or the tasks don't match the GPUs
    """
    if "SLURM_JOB_ID" not in os.environ or cfg.pipeline_model_parallel:
        return infer_slurm_init(cfg, num_pipelines_per_node)
    if "SLURM_STEP_NUM_TASKS" not in os.environ:
        job_nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
        if job_nodes != "1":
            raise UserError(
                f"fairseq-train has started on one of the {job_nodes} nodes of this Slurm job: put "
                "srun before it, with a task for each GPU (docs/training.md)"
            )
        return False
    tasks, nodes = (int(os.environ[f"SLURM_STEP_NUM_{name}"]) for name in ("TASKS", "NODES"))
    gpus = torch.cuda.device_count()
    if tasks not in (nodes, nodes * gpus):
        raise UserError(
            f"srun must start one task for each GPU, {gpus} on each node, or one for each node, "
            f"but starts {tasks} tasks on {nodes} nodes: change --ntasks-per-node"
        )
    cfg.distributed_world_size = nodes * gpus
    if tasks > 1 and cfg.distributed_port <= 0:
        # all tasks must agree on a port
        cfg.distributed_port = 10_000 + int(os.environ["SLURM_JOB_ID"]) % 50_000
    # fairseq reads the job's values, which may differ from the step's
    os.environ.update(SLURM_NNODES=str(nodes), SLURM_NTASKS_PER_NODE=str(tasks // nodes))
    return infer_slurm_init(cfg, num_pipelines_per_node)


def spawn_processes(spawn: Callable, *args: Any, nprocs: int, **kwargs: Any) -> Any:
    """torch.multiprocessing.spawn for a run on several GPUs.

    Raises:
        UserError: there is no GPU to start a process for, or a signal has ended a process
    """
    if nprocs == 0:
        raise UserError(
            "PyTorch must see a CUDA device to train on several, but sees none: check with "
            "nvidia-smi that the driver runs, install PyTorch for CUDA, or train with --cpu"
        )
    try:
        return spawn(*args, nprocs=nprocs, **kwargs)
    except ProcessExitedException as error:
        if error.signal_name is None:
            raise
        raise UserError(
            f"process {error.error_index} of {nprocs} was ended from outside by "
            f"{error.signal_name}, and the others have been ended: see the log of the scheduler "
            "or of the system, which end a process that needs too much memory; the same command "
            "resumes the training"
        ) from error
