"""From the wheel, in an empty folder: every part of the command works without the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("diet_fairseq", "setup.py", "pyproject.toml", "README.md",
           "LICENSE", "MANIFEST.in")  # fmt: skip
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment with the wheel, which was built from the source distribution.

    Its path has this environment's packages behind its own, but not what their .pth files add, as
    the editable installation of the checkout does: only a folder of the environment itself has such
    files read.
    """
    folder = tmp_path_factory.mktemp("installed")
    tree = folder / "tree"
    tree.mkdir()
    for name in SHIPPED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, tree)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, tree]
    subprocess.run(build, check=True, capture_output=True)
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    [wheel] = folder.glob("*.whl")
    install = ["install", "--no-deps", "--no-index", "--ignore-installed", wheel]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True)
    [site] = (folder / "env" / "lib").glob("python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "env"


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """The folder that commands run in."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture
def call(environment, empty):
    """Runs `diet-fairseq` with these words; returns what it printed."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words, program="diet-fairseq"):
        command = [environment / "bin" / program, *map(str, words)]
        done = subprocess.run(command, cwd=empty, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run


def test_help_is_printed(call):
    assert call("export", "--help").startswith("usage: diet-fairseq export")


def test_the_package_is_the_wheel_s(call, environment):
    program = (
        "import diet_fairseq, diet_fairseq.cli as cli; print(diet_fairseq.__file__, cli.__file__)"
    )
    paths = call("-c", program, program="python").split()[-2:]
    assert all(environment in Path(path).parents for path in paths)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("patches", "plugin         fairseq.trainer:Trainer.__init__"),
        ("schemes", "    --arch bert_diet_abs_lin[_tiny|_small|_base|_large]"),
    ],
)
def test_the_tables_are_printed(call, name, line):
    assert f"\n{line}" in call(name)
