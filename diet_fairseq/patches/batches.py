"""Batches: every sentence is in one, and a resumed run continues with the same batches."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..errors import UserError


def whole(batch_by_size: Callable) -> Callable:
    """Keep the last batch, which fairseq drops if its size is not a multiple of 8: of 12
    sentences 8 are left, of 7 none, for ``fairseq-generate`` to translate and score as well.

    Batches are consecutive pieces of ``indices``, so what is missing is at their end.
    """

    @wraps(batch_by_size)
    def wrapper(indices: Any, *args: Any, **kwargs: Any) -> list:
        if not len(indices):
            raise UserError(
                "there are no batches: the data is empty, or all of it is longer "
                "than the model takes (see the warnings above); give a smaller "
                "--tokens-per-sample, or train with larger --max-positions, or "
                "--max-source-positions and --max-target-positions"
            )
        batches = list(batch_by_size(indices, *args, **kwargs))
        kept = sum(map(len, batches))
        if kept < len(indices) and kwargs.get("fixed_shapes") is None:
            batches.append(indices[kept:])
        return batches

    return wrapper


def same_batches(get_batch_iterator: Callable) -> Callable:
    """Make a resumed run's batches those of a run that was not interrupted.

    That one makes them in its first epoch, with a seed that the epoch is part of, and keeps them;
    fairseq makes the resumed run's with the epoch in which it resumes, so that sentences come
    twice in that epoch and others never.
    """

    @wraps(get_batch_iterator)
    def wrapper(self: Any, dataset: Any, *args: Any, epoch: int = 1, **kwargs: Any) -> Any:
        fresh = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
        if fresh or not self.can_reuse_epoch_itr(dataset) or dataset in self.dataset_to_epoch_iter:
            return get_batch_iterator(self, dataset, *args, epoch=epoch, **kwargs)
        iterator = get_batch_iterator(self, dataset, *args, epoch=1, **kwargs)
        iterator.epoch = max(epoch, 1)
        dataset.set_epoch(iterator.epoch)
        return iterator

    return wrapper
