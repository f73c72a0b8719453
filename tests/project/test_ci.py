"""The checks of a submission run what README tells a reader to run."""

import os
import shutil
import subprocess

from tests.support.pages import BLOCK, ROOT, text_of

COMMANDS = ["make demo", "make test"]


def test_readme_prints_the_commands_that_do_everything_one_under_the_other():
    blocks = [block.splitlines() for language, block in BLOCK.findall(text_of("README.md"))]
    assert COMMANDS in blocks
    text = " ".join(text_of("README.md").split())
    assert "the demo takes about" in text
    assert "the tests take about" in text


def test_ci_runs_the_commands_that_readme_prints(tmp_path):
    """With a stand-in for make, and a README that prints one command more."""
    programs = tmp_path / "bin"
    programs.mkdir()
    make = programs / "make"
    make.write_text('#!/bin/sh\necho "make $1"\n')
    make.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    readme = text_of("README.md").replace("make test\n", "make test\nmake coffee\n")
    (tmp_path / "README.md").write_text(readme)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    environment.pop("CI_LIMITED", None)
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    targets = [line for line in done.stdout.splitlines() if line.startswith("make ")]
    assert {*COMMANDS, "make coffee", "make lint", "make test-slow"} <= set(targets)
    assert len(targets) == len(set(targets))
