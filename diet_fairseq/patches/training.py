"""fairseq's training program: its lock, its limit, and the checks that our models need.

``fairseq-train`` and ``python -m fairseq_cli.train`` are two modules of the same text, which the
processes of a run on several GPUs import anew. So names of that module are changed where its
``main`` is called, for as long as it runs.
"""

import logging
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq.distributed import utils as distributed

from ..errors import UserError
from ..modes import active_kinds
from ..optim.linear_ratio import LinearRatio
from . import saving, sharding
from .patch import intercepts

logger = logging.getLogger("fairseq_cli.train")


@intercepts(
    "fairseq.distributed.utils:call_main",
    data="two trainings that write to one folder spoil each other's checkpoints, and a finished "
    "run that is started again makes one more update, which it saves",
    ours="masked_lm_nsp's model, task and criterion need each other, and fully_sharded builds its "
    "model without fairscale",
)
def run_training(call_main: Callable, cfg: Any, main: Callable, **kwargs: Any) -> Any:
    if "validate_and_save" not in getattr(main, "__globals__", {}):  # another program
        return call_main(cfg, main, **kwargs)
    check_objective(cfg)
    sharding.check(cfg)
    locked = "data" in active_kinds() and not cfg.checkpoint.no_save and _is_master(cfg)
    with saving.lock(cfg.checkpoint.save_dir) if locked else nullcontext():
        return call_main(cfg, Program(main), **kwargs)


def _is_master(cfg: Any) -> bool:
    """Whether this process saves a run's checkpoints; torchrun and Slurm say it in variables."""
    distributed.infer_init_method(cfg.distributed_training)
    return bool(distributed.is_master(cfg.distributed_training))


@dataclass(frozen=True)
class Program:
    """``main`` with our changes; it can be sent to another process."""

    main: Callable

    def __call__(self, cfg: Any, **kwargs: Any) -> None:
        names = self.main.__globals__
        # The model is built as it is, without fairscale's context: `sharding` shards it later.
        changed: dict[str, Callable] = {"fsdp_enable_wrap": nullcontext}
        if "data" in active_kinds():
            changed["train"] = partial(stop_at_max_update, names["train"])
        originals = {name: names[name] for name in changed}
        names.update(changed)
        try:
            self.main(cfg, **kwargs)
        finally:
            names.update(originals)


def stop_at_max_update(train: Callable, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """Train an epoch, unless a resumed run has reached ``--max-update`` already."""
    updates, limit = trainer.get_num_updates(), cfg.optimization.max_update or math.inf
    if updates < limit:
        return train(cfg, trainer, task, epoch_itr)
    logger.info(f"Stopping training due to num_updates: {updates} >= max_update: {limit}")
    return [None], True


def check_objective(cfg: Any) -> None:
    """Refuse a next-sentence head without its loss, or pairs of texts without the head."""
    criterion, task = (getattr(part, "_name", None) for part in (cfg.criterion, cfg.task))
    if criterion == "masked_lm_nsp":
        return
    for is_given, flag in (
        (getattr(cfg.model, "nsp", False), "--nsp"),
        (task == "masked_lm_nsp", "--task masked_lm_nsp"),
    ):
        if is_given:
            raise UserError(
                f"{flag} goes with --criterion masked_lm_nsp, but the criterion is {criterion}: "
                f"take that, or leave {flag} out"
            )


@intercepts(
    "fairseq.trainer:Trainer.get_train_iterator",
    ours="linear_ratio does not know how many batches an epoch has",
)
def tell_epoch_size(get_train_iterator: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    iterator = get_train_iterator(self, *args, **kwargs)
    schedule, data = self.lr_scheduler, self.cfg.dataset
    if not isinstance(schedule, LinearRatio):
        return iterator
    if not (self.task.has_sharded_data(data.train_subset) or data.update_epoch_batch_itr):
        schedule.learn_epoch_size(len(iterator))
    elif schedule.total is None:
        raise UserError(
            f"--lr-scheduler linear_ratio can't know how many updates --max-epoch "
            f"{schedule.cfg.max_epoch} is, as not every epoch has the same batches: give "
            "--max-update"
        )
    return iterator
