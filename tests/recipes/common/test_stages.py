"""Stages know what they were made from; a program that fails ends its stage."""

import os
import shutil
import sys

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


def test_a_program_that_was_killed_has_failed(tmp_path):
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    with pytest.raises(UserError, match=r"ended with status -9: see"):
        programs.run(killed, tmp_path / "log")
