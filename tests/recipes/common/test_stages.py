"""Stages know what they were made from; a program that fails ends its stage."""

import os
import shutil
import sys

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.common import programs, stages
from diet_fairseq.recipes.common.stages import Stage


def test_a_file_that_was_written_anew_is_another(tmp_path):
    path = tmp_path / "a"
    path.write_text("one")
    before = stages.fingerprint(path)
    os.utime(path, (1, 1))
    assert stages.fingerprint(path) != before


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
