"""fairseq's training program: its lock, its limit, and the checks that our models need.

The program is imported as ``fairseq_cli.train`` or run as ``__main__``, in each process of a run on
several GPUs. Therefore the globals of its ``main`` are changed only while ``main`` runs.
"""

import logging
import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from fairseq.distributed import utils as distributed

from ..errors import UserError
from ..optim.linear_ratio import LinearRatio
from . import saving, sharding
from .patch import active_reasons, intercepts

logger = logging.getLogger("fairseq_cli.train")


@intercepts(
    "fairseq.distributed.utils:call_main",
    correctness="two trainings that write to one folder overwrite each other's checkpoints, and a "
    "finished run that is started again makes and saves one more update",
    plugin="masked_lm_nsp's model, task and criterion need each other, and fully_sharded builds "
    "its model without fairscale",
)
def run_training(call_main: Callable, cfg: Any, main: Callable, **kwargs: Any) -> Any:
    if "validate_and_save" not in getattr(main, "__globals__", {}):  # another program
        return call_main(cfg, main, **kwargs)
    check_objective(cfg)
    sharding.check_options(cfg)
    needs_lock = "correctness" in active_reasons() and not cfg.checkpoint.no_save
    if needs_lock:  # by the process that saves; torchrun and Slurm set its rank
        distributed.infer_init_method(cfg.distributed_training)
        needs_lock = distributed.is_master(cfg.distributed_training)
    with saving.lock_folder(cfg.checkpoint.save_dir) if needs_lock else nullcontext():
        return call_main(cfg, run_program, program=main, **kwargs)


def run_program(cfg: Any, program: Callable, **kwargs: Any) -> None:
    """Run ``program``, the training program's ``main``, with our changes.

    fairseq sends this function by its name to the processes of a run on several GPUs.
    """
    # The model is built without fairscale's context, and `sharding` shards it later.
    changes: dict[str, Callable] = {"fsdp_enable_wrap": nullcontext}
    names = program.__globals__
    if "correctness" in active_reasons():
        changes["train"] = partial(stop_at_max_update, names["train"])
    originals = {name: names[name] for name in changes}
    names.update(changes)
    try:
        program(cfg, **kwargs)
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
                f"{flag} needs --criterion masked_lm_nsp, but the criterion is {criterion}: give "
                f"--criterion masked_lm_nsp, or omit {flag}"
            )


@intercepts(
    "fairseq.trainer:Trainer.get_train_iterator",
    plugin="linear_ratio does not know how many batches an epoch has",
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
            f"--lr-scheduler linear_ratio can't convert --max-epoch {schedule.cfg.max_epoch} into "
            "updates, because epochs differ in their number of batches: give --max-update"
        )
    return iterator
