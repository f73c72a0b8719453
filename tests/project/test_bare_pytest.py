"""The tests can be run as people run them: `pytest`, from the root, with no set-up of its own."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_bare_pytest_collects_the_tests():
    program = Path(sysconfig.get_path("scripts"), "pytest")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [program, "-q", "--collect-only", "-m", "", "tests/text/test_lines.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
