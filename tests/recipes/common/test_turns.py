"""What several commands would do at once, one does, and the others wait for it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.common import turns


@pytest.fixture(autouse=True)
def _nobody_interrupts():
    turns.interrupted.clear()
    yield
    turns.interrupted.clear()


def test_one_works_at_a_time_and_the_other_says_that_it_waits(tmp_path):
    at_work, finish, waits = threading.Event(), threading.Event(), threading.Event()
    done = []

    def first():
        with turns.turn(tmp_path, "squad", waits.set):
            at_work.set()
            assert finish.wait(20)
            done.append("first")

    def second():
        assert at_work.wait(20)
        with turns.turn(tmp_path, "squad", waits.set):
            done.append("second")

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(first), pool.submit(second)]
        assert waits.wait(20)
        assert done == []
        finish.set()
        for one in both:
            one.result()
    assert done == ["first", "second"]


def test_another_name_is_another_turn(tmp_path):
    with turns.turn(tmp_path, "squad", pytest.fail), turns.turn(tmp_path, "mnli", pytest.fail):
        pass


def test_who_waits_gives_up_when_the_command_is_interrupted(tmp_path):
    def wait():
        with turns.turn(tmp_path, "squad", turns.interrupted.set):
            pass

    with (
        turns.turn(tmp_path, "squad", pytest.fail),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(UserError, match="interrupted while it waited for its turn: start it again"),
    ):
        pool.submit(wait).result()
