"""The trainer tells `LinearRatio` how many batches an epoch has."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..errors import UserError
from ..optim.linear_ratio import LinearRatio


def tells_epoch_size(get_train_iterator: Callable) -> Callable:
    """Tell the schedule how many batches an epoch has, which fairseq doesn't."""

    @wraps(get_train_iterator)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        iterator = get_train_iterator(self, *args, **kwargs)
        schedule = self.lr_scheduler
        if isinstance(schedule, LinearRatio):
            data = self.cfg.dataset
            if (
                not self.task.has_sharded_data(data.train_subset)
                and not data.update_epoch_batch_itr
            ):
                schedule.learn_epoch_size(len(iterator))
            elif schedule.total is None:
                raise UserError(
                    f"--lr-scheduler linear_ratio can't know how many updates --max-epoch "
                    f"{schedule.cfg.max_epoch} is, as not every epoch has the same batches: give "
                    "--max-update"
                )
        return iterator

    return wrapper
