"""Batches: every sentence is in one, and a resumed run continues with the same batches."""

import logging
import sys
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numpy as np

from .patch import ModuleView

logger = logging.getLogger(__name__)


# --- NumPy 2


def with_compat(numpy: Any) -> Any:
    """NumPy with ``np.compat.long``, which NumPy 2 has dropped."""
    return ModuleView(numpy, compat=SimpleNamespace(long=np.int64))


def with_interpolation(numpy: Any) -> Any:
    """NumPy with ``percentile``'s argument ``interpolation``, which NumPy 2 calls ``method``."""

    def percentile(sizes: Any, shares: Any, interpolation: str) -> Any:
        return np.percentile(sizes, shares, method=interpolation)  # type: ignore[call-overload]

    return ModuleView(numpy, percentile=percentile)


# --- every sentence


def keep_last_batch(batch_by_size: Callable) -> Callable:
    """``batch_by_size`` with the last batch, whatever its size.

    fairseq drops it if its size is not a multiple of 8: 8 of 12 sentences remain, and none of 7,
    in ``fairseq-generate``, too. Batches are consecutive parts of ``indices``, so the missing
    sentences are at their end.
    """

    @wraps(batch_by_size)
    def wrapper(indices: Any, *args: Any, **kwargs: Any) -> list:
        batches = list(batch_by_size(indices, *args, **kwargs))
        size = sum(map(len, batches))
        if size < len(indices) and kwargs.get("fixed_shapes") is None:
            batches.append(indices[size:])
        return batches

    return wrapper


def restart_workers(init: Callable) -> Callable:
    """``EpochBatchIterator.__init__`` whose data loader starts new processes in every epoch.

    fairseq keeps those of the first epoch, whose copy of the data never hears of another one:
    with ``--num-workers`` 1, its default, dynamic masking masks the same tokens in every epoch.
    """

    @wraps(init)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "persistent_workers": False})

    return wrapper


# --- resuming


def batches_of_first_epoch(get_batch_iterator: Callable) -> Callable:
    """``FairseqTask.get_batch_iterator`` that makes a resumed run's batches as in epoch 1.

    An uninterrupted run makes them in its first epoch, with a seed that depends on the epoch, and
    keeps them. fairseq makes a resumed run's with the epoch in which it resumes, so that some
    sentences come twice in that epoch and others never.
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


def save_epoch_size(state_dict: Callable) -> Callable:
    """``EpochBatchIterator.state_dict`` with the number of batches and of processes."""

    @wraps(state_dict)
    def wrapper(self: Any) -> dict[str, Any]:
        return state_dict(self) | _epoch_size(self)

    return wrapper


def _epoch_size(iterator: Any) -> dict[str, int]:
    return {"batches": len(iterator.frozen_batches), "shards": iterator.num_shards}


def resume_at_same_share(load_state_dict: Callable) -> Callable:
    """``EpochBatchIterator.load_state_dict`` for any number of processes.

    fairseq counts the batches of one process: on another number of processes batches come twice,
    or never. If the batches differ, too, training resumes at the same share of the epoch.
    """

    @wraps(load_state_dict)
    def wrapper(self: Any, state_dict: dict[str, Any]) -> None:
        now = _epoch_size(self)
        saved = {name: state_dict.get(name, now[name]) for name in now}
        place = state_dict.get("iterations_in_epoch", 0)
        if place and saved != now:
            done = place * saved["shards"] * now["batches"] // saved["batches"]
            place = min(done // now["shards"], len(self) - 1)
            if saved["batches"] != now["batches"]:
                logger.warning(
                    f"the epoch has {now['batches']:,} batches, and had {saved['batches']:,} when "
                    "the checkpoint was saved: training goes on at the same share of it, so that "
                    "some sentences come twice in this epoch, and others not at all"
                )
        load_state_dict(self, {**state_dict, "iterations_in_epoch": place})

    return wrapper


def group_whole_rest(init: Callable) -> Callable:
    """``GroupedIterator.__init__`` whose groups end with the epoch, wherever they begin.

    fairseq counts groups of ``--update-freq`` batches from the beginning of the epoch: resumed
    with another ``--update-freq``, they end early, and the epoch is trained once more.
    """

    @wraps(init)
    def wrapper(
        self: Any, iterable: Any, chunk_size: int, skip_remainder_batch: bool = False
    ) -> None:
        rest = len(iterable) - getattr(iterable, "n", 0)
        init(self, iterable, chunk_size, skip_remainder_batch)
        if not skip_remainder_batch:
            self.total = self.n + -(-rest // chunk_size)

    return wrapper


# --- the end of a run


def end_with_iterator(create_consumer: Callable) -> Callable:
    """``BufferedIterator._create_consumer`` whose thread ends with the iterator, or the program.

    fairseq's thread reads on until the interpreter is gone, which then aborts (status 134); after
    a validation that ``--max-valid-steps`` cuts it waits for ever, with the processes that fetch
    data for it.
    """

    @wraps(create_consumer)
    def wrapper(self: Any) -> None:
        create_consumer(self)
        weakref.finalize(self, _end, self._consumer, self._queue)  # also called at exit

    return wrapper


def _end(consumer: Any, queue: Any) -> None:
    """End the thread that fills a queue, which nobody reads."""
    consumer._max_len = 0  # it ends with the batch at hand
    if consumer is threading.current_thread():  # which may hold the queue's lock
        return
    with queue.mutex:
        queue.queue.clear()
        queue.maxsize = sys.maxsize  # room for that batch, and for the mark of the end
        queue.not_full.notify_all()
    consumer.join()
