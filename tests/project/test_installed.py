"""From the wheel, in an empty folder: every part of the command works without the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.pages import ROOT, committed_files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the sdist and the wheel, which is built from it, and the checkout's files."""
    folder = tmp_path_factory.mktemp("built")
    names = {str(path.relative_to(ROOT)) for path in committed_files()}
    for name in names:  # a copy, since building leaves files behind
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "tree" / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, "."]
    subprocess.run(command, cwd=folder / "tree", check=True, capture_output=True)
    return folder, names


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    [wheel] = built[0].glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An environment with the wheel.

    Its path has this environment's packages behind its own, but not what their .pth files add, as
    the editable installation of the checkout does: only a folder of the environment itself has such
    files read.
    """
    folder = tmp_path_factory.mktemp("installed") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    install = ["install", "--no-deps", "--no-index", "--ignore-installed", wheel]
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True)
    [site] = (folder / "lib").glob("python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_wheel_and_sdist_hold_what_they_need(built, wheel):
    folder, names = built
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    package = {name for name in names if name.startswith("diet_fairseq/")}
    assert {name for name in shipped if ".dist-info/" not in name} == package
    assert any(name.endswith("/LICENSE") for name in shipped)
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert names - held <= {".gitignore"}


def test_commands_work_in_an_empty_folder(environment, tmp_path):
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(program, *words):
        command = [environment / "bin" / program, *words]
        return subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
        ).stdout

    program = "import diet_fairseq; print(diet_fairseq.__file__)"
    assert environment in Path(call("python", "-c", program).split()[-1]).parents
    assert call("diet-fairseq", "export", "--help").startswith("usage: diet-fairseq export")
    assert "fairseq.trainer:Trainer.__init__" in call("diet-fairseq", "patches")
    line = "    --arch bert_diet_abs_lin[_tiny|_small|_base|_large]"
    assert f"\n{line}" in call("diet-fairseq", "schemes")
