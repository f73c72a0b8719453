"""A run that has reached its own limit says so and makes no further update.

fairseq looks at its limits after an update only, so that it makes one more whenever a finished run
is started again, saves it, and counts the validations of ``--patience`` from the start.
"""

import logging
import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from .stand_in import StandIn

#: the logger whose lines are in --log-file
_log = logging.getLogger("fairseq_cli.train")


def reached(trainer: Any, epochs: int) -> str | None:
    """Which limit a resumed run has reached, if any, after that many whole epochs."""
    limits, checkpoint = trainer.cfg.optimization, trainer.cfg.checkpoint
    updates, rate = trainer.get_num_updates(), trainer.get_lr()
    # of this run's checkpoints alone: what fine-tuning starts from was trained in another run
    hours = trainer.cumulative_training_time() / 3600 if updates else 0
    stalled = trainer.early_stop.get("num_runs", 0)
    if 0 < (limits.max_update or 0) <= updates:
        return f"{_counted(updates, 'update')} made, and --max-update is {limits.max_update}"
    if 0 < (limits.max_epoch or 0) <= epochs:
        return f"{_counted(epochs, 'epoch')} done, and --max-epoch is {limits.max_epoch}"
    if 0 < limits.stop_time_hours < hours:
        limit = f"{limits.stop_time_hours:g}"
        return f"it has trained for {hours:.2g} hours, and --stop-time-hours is {limit}"
    if 0 < checkpoint.patience <= stalled:
        limit = checkpoint.patience
        return f"{_counted(stalled, 'validation')} no better, and --patience is {limit}"
    if updates and rate <= limits.stop_min_lr:
        return f"the learning rate is {rate:g}, and --stop-min-lr is {limits.stop_min_lr:g}"
    return None


def _counted(number: int, noun: str) -> str:
    """``3 updates are``, ``1 update is``."""
    return f"{number:,} {noun} is" if number == 1 else f"{number:,} {noun}s are"


def finished(load_checkpoint: Callable) -> Callable:
    """Don't train if a limit is already reached."""

    @wraps(load_checkpoint)
    def wrapper(cfg: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        state, iterator = load_checkpoint(cfg, trainer, *args, **kwargs)
        if state is None:
            return state, iterator
        if trainer.get_num_updates() and not cfg.reset_meters:
            trainer.early_stop = state.get("early_stop", {})
        limit = reached(trainer, iterator.next_epoch_idx - 1)
        if limit:
            _log.info(f"this run is finished: {limit}; to go on, move that limit")
            # The next epoch's number is compared with the last one's; nothing is true of NaN.
            iterator = StandIn(iterator, next_epoch_idx=math.nan)
        return state, iterator

    return wrapper


def patient(validate_and_save: Callable) -> Callable:
    """Save in every checkpoint how many validations in a row brought no improvement."""

    @wraps(validate_and_save)
    def wrapper(cfg: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        # fairseq counts in attributes of a function beside this one.
        counts = vars(validate_and_save.__globals__["should_stop_early"])
        if trainer.early_stop is not counts:
            counts.clear()
            counts.update(trainer.early_stop)
            trainer.early_stop = counts
        return validate_and_save(cfg, trainer, *args, **kwargs)

    return wrapper


def with_counts(save_checkpoint: Callable) -> Callable:
    @wraps(save_checkpoint)
    def wrapper(self: Any, filename: str, extra_state: dict[str, Any]) -> Any:
        return save_checkpoint(self, filename, {**extra_state, "early_stop": {**self.early_stop}})

    return wrapper
