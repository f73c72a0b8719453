"""Stages know what they were made from; a program that fails ends its stage."""

import os
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.common import programs, stages
from diet_fairseq.recipes.common.stages import Stage


def test_a_file_is_known_by_name_and_contents_and_not_by_place_or_time(tmp_path):
    path = tmp_path / "a"
    path.write_text("one")
    before = stages.fingerprint(path)
    os.utime(path, (1, 1))
    assert stages.fingerprint(path) == before
    (tmp_path / "moved").mkdir()
    assert stages.fingerprint(path.rename(tmp_path / "moved" / "a")) == before
    (tmp_path / "b").write_text("one")
    assert stages.fingerprint(tmp_path / "b") != before
    path.write_text("two")
    assert stages.fingerprint(path) != before


@pytest.mark.parametrize(
    ("before", "wanted", "said"),
    [
        ({"x": 1}, {"x": 1}, None),
        ({"x": 1}, {}, "x (1, now null)"),
        ({"rules": {"a": 1, "b": 2}}, {"rules": {"a": 1, "b": 3}}, "rules, b (2, now 3)"),
        (
            {"files": {"train": [["a", "12"], ["b", "34"]]}},
            {"files": {"train": [["a", "12"], ["b", "56"]]}},
            'files, train (["b", "34"], now ["b", "56"])',
        ),
        ({"x": ["a"]}, {"x": ["a", "b"]}, 'x (["a"], now ["a", "b"])'),
    ],
)
def test_a_difference_is_named_down_to_the_entry(before, wanted, said):
    assert stages.difference(before, wanted) == said


def test_a_stage_is_made_from_the_settings_of_those_before_it_too(tmp_path):
    def run_all(x):
        stages.run_all(
            tmp_path,
            [
                Stage(name, settings, lambda folder: None)
                for name, settings in (("a", {"x": x}), ("b", {"y": 1}))
            ],
        )

    run_all(1)
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(UserError, match=r"b was made with other settings: x \(1, now 2\)"):
        run_all(2)


@pytest.mark.parametrize("damaged", ["{", "null", "[1]", "[[1, 2]]"])
def test_a_stage_that_does_not_say_what_it_was_made_from_is_named(damaged, tmp_path):
    (tmp_path / stages.MADE_FROM).write_text(damaged)
    with pytest.raises(UserError, match=f"is damaged .*: {tmp_path} was not made by this command"):
        stages.stage(tmp_path, {}, lambda partial: None)


def test_of_two_commands_one_makes_a_stage_and_the_other_waits_for_it(tmp_path, capsys):
    begun, finish = threading.Event(), threading.Event()

    def make(folder):
        begun.set()
        assert finish.wait(60)
        (folder / "text").write_text("whole")

    def run_all():
        stages.run_all(tmp_path, [Stage("a", {}, make), Stage("b", {}, lambda folder: None)])

    said = ""
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(run_all)
        assert begun.wait(60)
        other = pool.submit(run_all)
        end = time.monotonic() + 10
        while "waits" not in said and time.monotonic() < end:
            time.sleep(0.05)
            said += capsys.readouterr().out
        finish.set()
        one.result(), other.result()
    said += capsys.readouterr().out
    assert f"{tmp_path}/a: waits for another command, which makes it\n" in said
    assert said.count(f"{tmp_path}/a: working\n") == 1
    assert said.count(f"{tmp_path}/a: done before\n") == 1
    assert (tmp_path / "a" / "text").read_text() == "whole"


def test_a_program_that_was_killed_has_failed(tmp_path):
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    with pytest.raises(UserError, match=r"ended with status -9: see"):
        programs.run(killed, tmp_path / "log")
