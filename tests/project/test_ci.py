"""The checks of a submission run what README tells a reader to run."""

import os
import shutil
import subprocess

from tests.support.pages import ROOT, text_of


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
    expected = {"make demo", "make test", "make coffee", "make lint", "make test-slow"}
    assert expected <= set(targets)
    assert len(targets) == len(set(targets))
