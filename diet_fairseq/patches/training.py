"""fairseq's training program: its lock, its limit, and the checks that our models need.

The program is `fairseq_cli.train.main`, in each process of a run on several GPUs. fairseq-train
imports the plugin before it calls `call_main`, fairseq-hydra-train after that, in the program.
"""

import atexit
import logging
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from fairseq.distributed import utils as distributed

from ..errors import UserError
from ..optim.linear_ratio import LinearRatio
from . import saving, sharding
from .patch import active_reasons, intercepts

logger = logging.getLogger("fairseq_cli.train")
#: contexts that end with the process
contexts_of_process = ExitStack()
atexit.register(contexts_of_process.close)


class CheckedTraining:
    """Whether `call_main` has checked the training of this process."""

    is_running = False


@intercepts(
    "fairseq.distributed.utils:call_main",
    correctness="two trainings that write to one folder overwrite each other's checkpoints",
    plugin="masked_lm_nsp's model, task and criterion need each other, and options can't be "
    "combined with fully_sharded",
)
def run_training(call_main: Callable, cfg: Any, main: Callable, **kwargs: Any) -> Any:
    if "validate_and_save" not in getattr(main, "__globals__", {}):  # another program
        return call_main(cfg, main, **kwargs)
    check_training(cfg)
    if not cfg.checkpoint.no_save:  # torchrun and Slurm set the rank of the process that saves
        distributed.infer_init_method(cfg.distributed_training)
    with lock_checkpoints(cfg):
        return call_main(cfg, run_program, program=main, **kwargs)


def run_program(cfg: Any, program: Callable, **kwargs: Any) -> None:
    """Run ``program``, the training program's ``main``, whose configuration is checked.

    fairseq sends this function by its name to the processes of a run on several GPUs.
    """
    CheckedTraining.is_running = True
    try:
        program(cfg, **kwargs)
    finally:
        CheckedTraining.is_running = False


@intercepts(
    "fairseq.trainer:Trainer.__init__",
    correctness="fairseq-hydra-train: two trainings write to one folder",
    plugin="fairseq-hydra-train: the checks of call_main; fully_sharded: --bf16 would leave no "
    "float32 parameters to shard",
)
def prepare_trainer(
    init: Callable, self: Any, cfg: Any, task: Any, model: Any, *args: Any, **kwargs: Any
) -> None:
    if not CheckedTraining.is_running and is_training_program():  # fairseq-hydra-train
        check_training(cfg)
        contexts_of_process.enter_context(lock_checkpoints(cfg))
        CheckedTraining.is_running = True
    sharding.keep_float32_parameters(cfg, model)
    init(self, cfg, task, model, *args, **kwargs)


@intercepts(
    "fairseq.checkpoint_utils:load_checkpoint",
    correctness="a finished run that is started again makes and saves one more update",
)
def stop_at_max_update(
    load_checkpoint: Callable, cfg: Any, trainer: Any, *args: Any, **kwargs: Any
) -> Any:
    """Load the checkpoint; if it has ``--max-update`` updates, the training has no epoch left."""
    loaded = load_checkpoint(cfg, trainer, *args, **kwargs)
    optimization = trainer.cfg.optimization
    updates, limit = trainer.get_num_updates(), optimization.max_update or math.inf
    if updates >= limit:
        logger.info(f"Stopping training due to num_updates: {updates} >= max_update: {limit}")
        optimization.max_epoch = -1  # 0 means no limit
    return loaded


def is_training_program() -> bool:
    """Whether this process runs fairseq's training program, not a user's own program."""
    return any(hasattr(sys.modules.get(name), "validate_and_save") for name in sharding.PROGRAMS)


def check_training(cfg: Any) -> None:
    """Refuse options that our models and our sharding can't have."""
    check_objective(cfg)
    sharding.check_options(cfg)


def lock_checkpoints(cfg: Any) -> AbstractContextManager[None]:
    """The lock of the folder of checkpoints, for the process that saves them."""
    saves = not cfg.checkpoint.no_save and distributed.is_master(cfg.distributed_training)
    if saves and "correctness" in active_reasons():
        return saving.lock_folder(cfg.checkpoint.save_dir)
    return nullcontext()


def check_objective(cfg: Any) -> None:
    """Refuse a head without its loss, and a loss or pairs of texts without the head."""
    criterion, task = (getattr(part, "_name", None) for part in (cfg.criterion, cfg.task))
    if getattr(cfg.model, "no_lm_head", False) and criterion in ("masked_lm", "masked_lm_nsp"):
        raise UserError(
            f"--criterion {criterion} trains the head for masked words, which --no-lm-head leaves "
            "out: omit --no-lm-head to train a new head"
        )
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
