"""Batches hold every sentence once, also in an epoch that is resumed."""

import atexit
import logging
import multiprocessing
import threading
import time
from importlib import import_module

import fairseq
import numpy as np
import pytest
import torch
from fairseq.data import FairseqDataset
from fairseq.data.iterators import BufferedIterator, EpochBatchIterator, GroupedIterator
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks.fairseq_task import FairseqTask

from tests.support import commands


@pytest.mark.parametrize("size", [1, 7, 8, 12, 25])
def test_batches_hold_every_sentence_once(size):
    lengths = np.full(size, 5)
    for multiple in (1, 8):
        batches = fairseq.data.data_utils.batch_by_size(
            np.arange(size), None, lengths, 60, None, multiple
        )
        assert np.concatenate(batches).tolist() == list(range(size))
        assert max(map(len, batches)) <= 12


def test_lengths_are_bucketed_by_their_quantiles():
    lengths = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 30])
    assert fairseq.data.data_utils.get_buckets(lengths, 3).tolist() == [4, 7, 30]


class Numbers(FairseqDataset):
    """Sample n is n."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index

    def collater(self, samples):
        return torch.tensor(samples)


def iterators(batches, shards=1, **loading):
    """The iterator of each process; a batch is one number."""
    data, samples = Numbers(batches), [[number] for number in range(batches)]
    return [
        EpochBatchIterator(data, data.collater, samples, num_shards=shards, shard_id=shard,
                           reuse_dataloader=True, **loading)
        for shard in range(shards)
    ]  # fmt: skip


def next_numbers(iterator, updates):
    """The numbers of the next updates of an epoch that has begun."""
    return [int(next(iterator)) for _ in range(updates)]


def rest_of(state, batches, shards):
    """The numbers that processes read of the epoch in which they resume."""
    numbers = []
    for iterator in iterators(batches, shards):
        iterator.load_state_dict(state)
        numbers += [int(batch) for batch in iterator.next_epoch_itr()]
        assert iterator.end_of_epoch()
    return numbers


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 1), (1, 2), (2, 4), (4, 2)])
@pytest.mark.parametrize("updates", [1, 2])
def test_an_epoch_resumes_at_its_place_on_other_processes(before, after, updates):
    processes = iterators(16, before)
    numbers = [n for p in processes for n in next_numbers(p.next_epoch_itr(), updates)]
    rest = rest_of(processes[0].state_dict(), 16, after)
    assert {*numbers, *rest} == {*range(16)}
    # up to as many come twice as are read at once
    assert len(numbers) + len(rest) - 16 == len(numbers) % after


def test_an_epoch_of_other_batches_resumes_at_the_same_share_of_it(caplog):
    [iterator] = iterators(12)
    next_numbers(iterator.next_epoch_itr(), 6)
    with caplog.at_level(logging.WARNING, "diet_fairseq"):
        assert len(rest_of(iterator.state_dict(), 30, 1)) == 15
    assert "the epoch has 30 batches, but had 12 when the checkpoint was saved" in caplog.text
    assert len(rest_of(iterator.state_dict(), 2, 1)) == 1


def test_a_state_of_fairseq_alone_resumes_at_its_place():
    state = {"version": 2, "epoch": 1, "iterations_in_epoch": 4, "shuffle": True}
    assert len(rest_of(state, 12, 1)) == 8


@pytest.mark.parametrize("place", [0, 3, 4, 8])
@pytest.mark.parametrize("size", [1, 3, 4, 20])
def test_groups_of_batches_end_with_the_epoch(place, size):
    [iterator] = iterators(9)
    iterator.load_state_dict({"version": 2, "epoch": 1, "iterations_in_epoch": place})
    sizes = [len(group) for group in GroupedIterator(iterator.next_epoch_itr(), size)]
    assert sum(sizes) == 9 - place
    assert set(sizes[:-1]) <= {size}
    assert iterator.end_of_epoch()


def test_a_cut_validation_leaves_no_process_or_thread():
    [validation] = iterators(200, num_workers=1, buffer_size=4)
    before = threading.active_count()
    for _ in range(3):
        next_numbers(validation.next_epoch_itr(shuffle=False), 3)
    validation._cur_epoch_itr = None
    end = time.monotonic() + 20
    while multiprocessing.active_children() or threading.active_count() > before:
        assert time.monotonic() < end, "it waits on"
        time.sleep(0.05)


class Epochs(Numbers):
    """Every sample is the number of the epoch that the reading process knows."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return self.epoch


@pytest.mark.slow
@pytest.mark.usefixtures("_quick_end_of_workers")
@pytest.mark.parametrize("workers", [0, 1])
def test_data_loader_processes_learn_of_every_epoch(workers):
    """Dynamic masking draws its masks by the epoch."""
    data = Epochs(3)
    iterator = EpochBatchIterator(data, data.collater, [[0], [1], [2]], num_workers=workers,
                                  reuse_dataloader=True)  # fmt: skip
    for epoch in (1, 2, 3):
        assert [int(batch) for batch in iterator.next_epoch_itr()] == [epoch] * 3


class Pairs(Numbers):
    """Sentences of one length; batches differ by the seed of an epoch."""

    sizes = np.full(30, 5)

    def set_epoch(self, epoch):
        pass

    def ordered_indices(self):
        return np.random.permutation(self.count)

    def num_tokens_vec(self, indices):
        return self.sizes[indices]

    def get_batch_shapes(self):
        return None


def batches_of(epoch):
    """The batches of a run that begins, or resumes, in an epoch."""
    task = FairseqTask(FairseqDataclass())
    iterator = task.get_batch_iterator(Pairs(30), max_sentences=3, seed=1, epoch=epoch)
    assert iterator.next_epoch_idx == epoch
    return [list(map(int, batch)) for batch in iterator.frozen_batches]


def test_a_resumed_run_has_the_batches_of_epoch_1():
    assert batches_of(2) == batches_of(1)


class Slow(list):
    """Items that take a while to read."""

    def __iter__(self):
        for item in super().__iter__():
            time.sleep(0.01)
            yield item


def end_early():
    """Read one batch of many and end, as a training with --max-update does.

    Prints whether the thread that reads on is alive after all functions at exit.
    """
    import_module("diet_fairseq")
    iterator = BufferedIterator(3, Slow(range(1000)))
    print(next(iterator))
    atexit._run_exitfuncs()
    print("BackgroundConsumer" in [type(thread).__name__ for thread in threading.enumerate()])


@pytest.mark.slow
def test_the_thread_that_reads_on_ends_before_the_program():
    """PyTorch's code in it would abort while the interpreter ends."""
    done = commands.run(f"{__name__}:end_early")
    assert done.out.split() == ["0", "False"], done.err
