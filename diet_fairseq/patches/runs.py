"""Training runs that can't work are refused, and those that fail say why."""

import logging
import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch
from fairseq.distributed import utils as distributed

from ..errors import UserError, chain, rephrased
from . import program, sharding

logger = logging.getLogger(__name__)

#: How several processes work without GPUs, each started by the user with its own rank.
ON_CPUS = (
    "start each process yourself, with --cpu --distributed-no-spawn --distributed-world-size N "
    "--distributed-rank R --device-id 0 --distributed-backend gloo --ddp-backend legacy_ddp "
    "--distributed-init-method tcp://HOST:PORT"
)


BACKENDS_ON_CPUS = ("legacy_ddp", "pytorch_ddp", "fully_sharded")


def check_processes(cfg: Any) -> None:
    """Refuse several processes without GPUs, which fairseq handles wrongly.

    It starts one process for each GPU: without any it trains nothing and ends with status 0, or,
    under torchrun, every process trains for itself and all write the same checkpoints.
    """
    wanted = cfg.distributed_training
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    processes = max(wanted.distributed_world_size, launched)
    if torch.cuda.device_count() or cfg.common.tpu or processes == 1:
        return
    if not wanted.distributed_no_spawn or wanted.distributed_init_method is None:
        raise UserError(
            f"{processes} processes are requested, but fairseq starts one per GPU, and there "
            f"is none: {ON_CPUS}; or train in one process"
        )
    for flag, value, fit in (
        ("--distributed-backend", wanted.distributed_backend, ("gloo",)),
        ("--ddp-backend", wanted.ddp_backend, BACKENDS_ON_CPUS),
    ):
        if value not in fit:
            raise UserError(
                f"{flag} {value} needs GPUs, and there is none: take {flag} {' or '.join(fit)}"
            )


def check_objective(cfg: Any) -> None:
    """Refuse a next-sentence head without its loss, or pairs of texts without the head."""
    criterion, task = (getattr(part, "_name", None) for part in (cfg.criterion, cfg.task))
    if criterion == "masked_lm_nsp":
        return
    for given, flag in (
        (getattr(cfg.model, "nsp", False), "--nsp"),
        (task == "masked_lm_nsp", "--task masked_lm_nsp"),
    ):
        if given:
            raise UserError(
                f"{flag} goes with --criterion masked_lm_nsp, but the criterion is {criterion}: "
                f"take that, or leave {flag} out"
            )


def check_precision(cfg: Any) -> None:
    """Refuse float16 where fairseq can't train in it."""
    flat = cfg.common.fp16 and not cfg.common.fp16_no_flatten_grads
    if flat and (cfg.common.cpu or not torch.cuda.is_available()):
        raise UserError(
            "--fp16 makes one vector of all parameters, for which fairseq needs a GPU, and none is "
            "used: add --fp16-no-flatten-grads, or take --bf16"
        )
    if cfg.common.amp and (cfg.common.cpu or not torch.cuda.is_available()):
        raise UserError("--amp needs a GPU, and none is used: take --bf16, or leave it out")


def say_what_is_unused(cfg: Any) -> None:
    """Say it where the CPU multiplies in bfloat16 and the run does not."""
    common = cfg.common
    if common.bf16 or common.fp16 or not (common.cpu or not torch.cuda.is_available()):
        return
    # older PyTorchs can't tell
    known: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    found = [name for name in ("amx_bf16", "avx512_bf16") if known.get(name)]
    if found:
        logger.info(f"this CPU multiplies in bfloat16 ({found[0]}): --bf16 may be faster")


def checked(call_main: Callable) -> Callable:
    @wraps(call_main)
    def wrapper(cfg: Any, main: Callable, **kwargs: Any) -> Any:
        check_processes(cfg)
        check_objective(cfg)
        sharding.check(cfg)
        if program.trains(main):
            check_precision(cfg)
            say_what_is_unused(cfg)
        return call_main(cfg, main, **kwargs)

    return wrapper


def explained(train_step: Callable) -> Callable:
    """Say which update had gradients that are not finite."""

    @wraps(train_step)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        def say(error: Exception) -> str | None:
            # Before it ends, fairseq looks for the part of the model that gave these numbers; on
            # today's PyTorch that fails for models whose encoder returns a dictionary.
            causes = [cause for cause in chain(error) if isinstance(cause, FloatingPointError)]
            if not causes:
                return None
            update, folder = self.get_num_updates() + 1, self.cfg.checkpoint.save_dir
            if any("loss scale" in str(cause) for cause in causes):
                what = f"update {update} overflows float16 even at the smallest --min-loss-scale"
                cure = "take --bf16, lower --lr, or warm up longer"
            else:
                what = f"the gradients of update {update} are not finite (NaN or infinite)"
                cure = "lower --lr, warm up longer, or set --clip-norm"
            return f"{what}: {cure}; to go on from the last checkpoint in {folder}, run this again"

        with rephrased(say):
            return train_step(self, *args, **kwargs)

    return wrapper


def on_cpus(all_gather_list: Callable) -> Callable:
    """Gather what can't be summed (predictions, for instance), also without a GPU."""

    @wraps(all_gather_list)
    def wrapper(data: Any, group: Any = None, *args: Any, **kwargs: Any) -> list:
        if torch.cuda.is_available():
            return all_gather_list(data, group, *args, **kwargs)
        found = [None] * distributed.get_world_size(group)
        torch.distributed.all_gather_object(found, data, group)
        return found

    return wrapper
