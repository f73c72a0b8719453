"""Batches: every sentence is in one, and a resumed run continues with the same batches."""

import logging
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from ..errors import UserError

logger = logging.getLogger(__name__)


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


def percentile(sizes: Any, shares: Any, interpolation: str) -> Any:
    """NumPy's, by the name that the argument had."""
    return np.percentile(sizes, shares, method=interpolation)  # type: ignore[call-overload]


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


def reshuffled(iterator_for_epoch: Callable) -> Callable:
    """Shuffle from the epoch on in which ``--curriculum`` ends.

    fairseq goes on as in the first epoch: a run with ``--curriculum 1`` is never shuffled.
    """

    @wraps(iterator_for_epoch)
    def wrapper(
        self: Any, epoch: int, shuffle: bool, fix_batches_to_gpus: bool = False, offset: int = 0
    ) -> Any:
        if self.dataloader is not None:
            self.epoch_batch_sampler.shuffle = shuffle
            self.epoch_batch_sampler.fix_batches_to_gpus = fix_batches_to_gpus
        return iterator_for_epoch(self, epoch, shuffle, fix_batches_to_gpus, offset)

    return wrapper


def with_size(state_dict: Callable) -> Callable:
    """A checkpoint says how many batches its epoch has, and how many processes share them."""

    @wraps(state_dict)
    def wrapper(self: Any) -> dict[str, Any]:
        return state_dict(self) | size_of(self)

    return wrapper


def size_of(iterator: Any) -> dict[str, int]:
    return {"batches": len(iterator.frozen_batches), "shards": iterator.num_shards}


def continued(load_state_dict: Callable) -> Callable:
    """Go on at the same place of an epoch, on however many processes.

    fairseq counts the batches of one process: on another number of them batches come twice, or
    never. Where the batches are others, too, the place is the same share of the epoch.
    """

    @wraps(load_state_dict)
    def wrapper(self: Any, state_dict: dict[str, Any]) -> None:
        now = size_of(self)
        was = {name: state_dict.get(name, now[name]) for name in now}
        place = state_dict.get("iterations_in_epoch", 0)
        if place and was != now:
            done = place * was["shards"] * now["batches"] // was["batches"]
            place = min(done // now["shards"], len(self) - 1)
            if was["batches"] != now["batches"]:
                logger.warning(
                    f"the epoch has {now['batches']:,} batches, and had {was['batches']:,} when "
                    "the checkpoint was saved: training goes on at the same share of it, so that "
                    "some sentences come twice in this epoch, and others not at all"
                )
        load_state_dict(self, {**state_dict, "iterations_in_epoch": place})

    return wrapper


def whole_rest(init: Callable) -> Callable:
    """Groups of ``--update-freq`` batches end where the epoch does, wherever they begin.

    fairseq counts them from the beginning of the epoch: resumed with another ``--update-freq``,
    they end before, and the epoch is trained once more.
    """

    @wraps(init)
    def wrapper(
        self: Any, iterable: Any, chunk_size: int, skip_remainder_batch: bool = False
    ) -> None:
        left = len(iterable) - getattr(iterable, "n", 0)
        init(self, iterable, chunk_size, skip_remainder_batch)
        if not skip_remainder_batch:
            self.total = self.n + -(-left // chunk_size)

    return wrapper


def stopped(buffer: Any) -> None:
    """Have the thread that fills ``buffer`` end, now that nobody reads on.

    fairseq leaves it waiting for room, with the processes that fetch data for it: one more after
    every validation that ``--max-valid-steps`` cuts.
    """
    consumer, queue = buffer._consumer, buffer._queue
    if consumer is not None:
        consumer._max_len = 0  # it ends with the batch at hand
        with queue.mutex:
            queue.queue.clear()
            queue.maxsize = sys.maxsize  # room for that batch, and for the mark of the end
            queue.not_full.notify_all()
