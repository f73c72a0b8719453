"""A command that takes long prints a line at least every 20 seconds."""

import logging
import threading
import time
from itertools import pairwise

import pytest

from diet_fairseq import progress

NOW = 0.1  # seconds instead of 20


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", NOW)


def test_the_promise_is_twenty_seconds():
    assert progress.EVERY == 20


def test_silence_is_broken_again_and_again(impatient):
    beats = []
    with progress.heartbeat(lambda: beats.append(time.monotonic())):
        start = time.monotonic()
        time.sleep(8 * NOW)
        end = time.monotonic()
    assert len(beats) >= 3
    # a thread that has to wait for a core is late, and the next line is not
    assert all(later - sooner >= 0.5 * NOW for sooner, later in pairwise([start, *beats]))
    time.sleep(2 * NOW)
    assert beats[-1] <= end + NOW


def test_a_log_that_is_written_to_breaks_the_silence_itself(impatient):
    beats, log = [], logging.getLogger("fairseq.test")
    with progress.heartbeat(lambda: beats.append(1), log):
        for _ in range(10):
            log.warning("there")
            time.sleep(NOW / 4)
    assert beats == []
    assert not log.handlers


def test_an_error_ends_the_heartbeat(impatient):
    before = threading.active_count()
    with pytest.raises(KeyError), progress.heartbeat(lambda: None):
        raise KeyError
    assert threading.active_count() == before
