"""Help is quick, and nothing asks for a package that is not needed."""

import subprocess
import sys

import pytest
from fairseq.tasks import text_to_speech

from tests.support.road import EXAMPLES

PROGRAM = """
import runpy, sys
del sys.argv[0]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print("imported:", *{"torch", "fairseq", "diet_fairseq"} & set(sys.modules))
"""


@pytest.mark.parametrize("name", ["multi30k", "wmt18", "roberta", "demo"])
def test_a_recipe_s_help_waits_for_no_import(name):
    command = [sys.executable, "-c", PROGRAM, EXAMPLES / name / "run.py", "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")
    assert done.stdout.endswith("imported:\n")


@pytest.mark.slow
def test_a_recipe_s_command_has_its_own_help():
    command = [sys.executable, EXAMPLES / "multi30k/run.py", "train", "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--tokens-per-gpu" in done.stdout
    assert done.stderr == ""


def test_no_command_of_fairseq_s_asks_for_tensorboard():
    """It does when it is imported, where the package is not there."""
    assert text_to_speech.SummaryWriter is not None
