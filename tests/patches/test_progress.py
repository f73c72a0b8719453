"""Who waits reads a line at least every 20 seconds, whatever takes long."""

import logging
import re
import threading
import time
from functools import partial
from itertools import pairwise

import pytest
import torch
from fairseq.logging import progress_bar as fairseq_progress

from diet_fairseq import progress
from diet_fairseq.patches import loading
from tests.support import commands
from tests.support.commands import TINY, run

NOW = 0.1  # seconds instead of 20


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", NOW)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


def test_the_promise_is_twenty_seconds():
    assert progress.EVERY == 20


def test_silence_is_broken_again_and_again(impatient):
    said = []
    with progress.heartbeat(lambda: said.append(time.monotonic())):
        start = time.monotonic()
        time.sleep(8 * NOW)
        end = time.monotonic()
    assert len(said) >= 3
    # a thread that has to wait for a core is late, and the next line is not
    assert all(later - sooner >= 0.5 * NOW for sooner, later in pairwise([start, *said]))
    time.sleep(2 * NOW)
    assert said[-1] <= end + NOW


def test_who_hears_something_is_silent(impatient):
    said, log = [], logging.getLogger("fairseq.test")
    with progress.heartbeat(lambda: said.append(1), log):
        for _ in range(10):
            log.warning("there")
            time.sleep(NOW / 4)
    assert said == []
    assert not log.handlers


def test_nothing_is_left_of_it(impatient):
    before = threading.active_count()
    with pytest.raises(KeyError), progress.heartbeat(lambda: None):
        raise KeyError
    assert threading.active_count() == before


def slow(seconds):
    """A training whose updates, validations and translations take their time."""
    from fairseq.tasks.fairseq_task import FairseqTask
    from fairseq.trainer import Trainer

    progress.EVERY = NOW
    for owner, name in (
        (Trainer, "train_step"),
        (Trainer, "valid_step"),
        (FairseqTask, "inference_step"),
    ):
        original = getattr(owner, name)

        def late(*args, original=original, **kwargs):
            time.sleep(seconds)
            return original(*args, **kwargs)

        setattr(owner, name, late)


@pytest.mark.slow
def test_training_says_where_it_is_between_its_lines(data, tmp_path):
    simple = ("--log-format", "simple", "--log-interval", 100)
    done = run("train", data, *TINY, *simple, "--max-update", 2, "--save-dir", tmp_path,
               first=partial(slow, 20 * NOW))  # fmt: skip
    assert done.status == 0, done.err
    for update in (1, 2):
        assert len(re.findall(rf"epoch 001: at work on {update} of 4", done.text)) >= 2
    assert "epoch 001 | valid on 'valid' subset: at work on 1 of 1" in done.text
    done = run("generate", data, "--cpu", "--path", tmp_path / "checkpoint_last.pt",
               first=partial(slow, 20 * NOW))  # fmt: skip
    assert ": at work on 1 of 1" in done.text


def bars(folder, epochs):
    """The lines of a log file of so many epochs, and how many files were left open for it."""
    bar, path = fairseq_progress.progress_bar, folder / "train.log"
    log = fairseq_progress.logger
    before = [*log.handlers]
    try:
        for epoch in range(1, epochs + 1):
            bar([], log_format="simple", log_file=str(path), epoch=epoch)
            log.warning("train %d", epoch)
            bar([], log_format="simple", epoch=epoch)  # validation names no file
            log.warning("valid %d", epoch)
        return path.read_text().split("\n"), len({*log.handlers} - {*before})
    finally:
        for handler in {*log.handlers} - {*before}:
            log.removeHandler(handler)
            handler.close()


def test_a_line_stands_in_the_log_file_once_whatever_the_epoch(tmp_path, monkeypatch):
    lines, files = bars(tmp_path, 3)
    assert lines == ["train 1", "valid 1", "train 2", "valid 2", "train 3", "valid 3", ""]
    assert files == 1
    # fairseq's own, as long as it is in need of this
    monkeypatch.setattr(fairseq_progress, "progress_bar", fairseq_progress.progress_bar.__wrapped__)
    (tmp_path / "stock").mkdir()
    lines, files = bars(tmp_path / "stock", 3)
    assert (lines.count("train 3"), files) == (3, 3)


@pytest.mark.slow
def test_a_resumed_run_counts_its_seconds_on_and_a_new_one_anew(data, tmp_path):
    train = partial(run, "train", data, *TINY, "--disable-validation")
    assert train("--max-update", 1, "--save-dir", tmp_path / "a").status == 0
    last = tmp_path / "a" / "checkpoint_last.pt"
    with open(last, "rb") as file:
        state = loading.read(file, "cpu")
    state["extra_state"]["previous_training_time"] = 1000.0
    torch.save(state, last)

    def walls(done):
        assert done.status == 0, done.err
        return [float(wall) for wall in re.findall(r'"(?:train_)?wall": "(\d+)"', done.text)]

    tuned = train("--max-update", 2, "--save-dir", tmp_path / "b", "--finetune-from-model", last)
    assert max(walls(tuned)) < 1000
    assert max(walls(train("--max-update", 2, "--save-dir", tmp_path / "a"))) >= 1000
