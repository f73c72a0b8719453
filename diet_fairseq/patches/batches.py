"""Batches: every sentence is in one, and a resumed run continues with the same batches."""

import atexit
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from .patch import Proxy, intercepts, replaces

logger = logging.getLogger(__name__)

# --- NumPy 2


@replaces(
    "fairseq.data.language_pair_dataset:np",
    "fairseq.data.token_block_dataset:np",
    compatibility="NumPy 2: --sample-break-mode eos and bucketed lengths end in an AttributeError",
)
def restore_compat(numpy: Any) -> Any:
    return Proxy(numpy, compat=SimpleNamespace(long=np.int64))


@replaces(
    "fairseq.data.data_utils:np",
    compatibility="NumPy 2 renamed percentile's argument interpolation: --num-batch-buckets ends "
    "in a TypeError",
)
def restore_interpolation(numpy: Any) -> Any:
    def percentile(sizes: Any, shares: Any, interpolation: str) -> Any:
        return np.percentile(sizes, shares, method=interpolation)  # type: ignore[call-overload]

    return Proxy(numpy, percentile=percentile)


# --- every sentence


@intercepts(
    "fairseq.data.data_utils:batch_by_size",
    correctness="the last batch is dropped if its size is not a multiple of 8, in test sets, too",
)
def keep_last_batch(batch_by_size: Callable, indices: Any, *args: Any, **kwargs: Any) -> list:
    """Batches are consecutive slices of ``indices``, so missing sentences are at the end."""
    batches = list(batch_by_size(indices, *args, **kwargs))
    size = sum(map(len, batches))
    if size < len(indices) and kwargs.get("fixed_shapes") is None:
        batches.append(indices[size:])
    return batches


@intercepts(
    "fairseq.data.iterators:EpochBatchIterator.__init__",
    correctness="dynamic masking masks the same tokens in every epoch, because the data loader's "
    "processes keep their copy of the first epoch's data",
)
def restart_workers(init: Callable, self: Any, *args: Any, **kwargs: Any) -> None:
    init(self, *args, **{**kwargs, "persistent_workers": False})


# --- resuming


@intercepts(
    "fairseq.tasks.fairseq_task:FairseqTask.get_batch_iterator",
    correctness="a run that is resumed within an epoch sees sentences twice, and others never",
)
def make_first_epoch_batches(
    get_batch_iterator: Callable, self: Any, dataset: Any, *args: Any, epoch: int = 1, **kwargs: Any
) -> Any:
    """Make a resumed run's batches as in epoch 1.

    An uninterrupted run makes its batches in the first epoch, with a seed that depends on the
    epoch, and keeps them. fairseq makes a resumed run's batches with the epoch in which it resumes.
    """
    fresh = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
    if fresh or not self.can_reuse_epoch_itr(dataset) or dataset in self.dataset_to_epoch_iter:
        return get_batch_iterator(self, dataset, *args, epoch=epoch, **kwargs)
    iterator = get_batch_iterator(self, dataset, *args, epoch=1, **kwargs)
    iterator.epoch = max(epoch, 1)
    dataset.set_epoch(iterator.epoch)
    return iterator


OTHER_WORLD_SIZE = (
    "a run that is resumed on another number of GPUs sees sentences twice, and others never"
)


@intercepts("fairseq.data.iterators:EpochBatchIterator.state_dict", correctness=OTHER_WORLD_SIZE)
def save_epoch_size(state_dict: Callable, self: Any) -> dict[str, Any]:
    return state_dict(self) | _epoch_size(self)


def _epoch_size(iterator: Any) -> dict[str, int]:
    """The number of batches of an epoch, and of processes that share them."""
    return {"batches": len(iterator.frozen_batches), "shards": iterator.num_shards}


@intercepts(
    "fairseq.data.iterators:EpochBatchIterator.load_state_dict", correctness=OTHER_WORLD_SIZE
)
def resume_at_same_share(load_state_dict: Callable, self: Any, state_dict: dict[str, Any]) -> None:
    """Convert the count of batches, which fairseq counts per process, to this number of processes.

    If the epoch's batches differ, too, training resumes at the same share of the epoch.
    """
    now = _epoch_size(self)
    saved = {name: state_dict.get(name, now[name]) for name in now}
    place = state_dict.get("iterations_in_epoch", 0)
    if place and saved != now:
        done = place * saved["shards"] * now["batches"] // saved["batches"]
        place = min(done // now["shards"], len(self) - 1)
        if saved["batches"] != now["batches"]:
            logger.warning(
                f"the epoch has {now['batches']:,} batches, but had {saved['batches']:,} when the "
                "checkpoint was saved: training continues at the same fraction of the epoch, so "
                "this epoch repeats some sentences and skips others"
            )
    load_state_dict(self, {**state_dict, "iterations_in_epoch": place})


@intercepts(
    "fairseq.data.iterators:GroupedIterator.__init__",
    correctness="a run that is resumed with another --update-freq repeats an epoch",
)
def group_whole_rest(
    init: Callable, self: Any, iterable: Any, chunk_size: int, skip_remainder_batch: bool = False
) -> None:
    """Count the groups of ``--update-freq`` batches that the rest of an epoch has."""
    rest = len(iterable) - getattr(iterable, "n", 0)
    init(self, iterable, chunk_size, skip_remainder_batch)
    if not skip_remainder_batch:
        self.total = self.n + -(-rest // chunk_size)


# --- the end of a run


@intercepts(
    "fairseq.data.iterators:BufferedIterator._create_consumer",
    compatibility="PyTorch 2: with --num-workers 0 a run that ends within an epoch aborts (status "
    "134), and a validation that --max-valid-steps ends leaves a process and a thread behind",
)
def end_consumer(create_consumer: Callable, self: Any) -> None:
    """End the thread that reads batches with its iterator, or before the interpreter."""
    create_consumer(self)
    end = weakref.finalize(self, _end_consumer, self._consumer, self._queue)
    atexit.register(end)  # Python 3.13's multiprocessing clears the entry of weakref itself


def _end_consumer(consumer: Any, queue: Any) -> None:
    """End the thread that fills a queue that nobody reads."""
    consumer._max_len = 0  # it ends after its current batch
    if consumer is threading.current_thread():  # it may hold the queue's lock
        return
    with queue.mutex:
        queue.queue.clear()
        queue.maxsize = sys.maxsize  # room for this batch and the end mark
        queue.not_full.notify_all()
    consumer.join()
