"""Which distribution of fairseq is installed, and what we say of it."""

import os
import subprocess
import sys
from pathlib import Path

import fairseq
import pytest

from diet_fairseq.distributions import FILE, check_distributions

FIXED = ("fairseq-fixed", "0.12.3.1")


def install(folder, name, version, files=(FILE,)):
    """The metadata that pip writes."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},sha256=x,25\n" for file in files))


@pytest.mark.parametrize(
    ("distributions", "warning"),
    [
        ([FIXED], None),
        ([("ve-fairseq", "0.12.3")], None),
        ([("fairseq-fixed", "0.12.9")],
         "fairseq is fairseq-fixed 0.12.9, but the tests of diet_fairseq run with fairseq-fixed "
         "0.12.3.1 and ve-fairseq 0.12.3"),
        ([("ve-fairseq", "0.12.3.1")], "fairseq is ve-fairseq 0.12.3.1, but the tests of diet_fai"),
        ([], "fairseq is 0.13.2 in {folder}, but the tests of diet_fairseq run with fairseq-fixed"),
        ([("fairseq", "0.12.2"), FIXED],
         "fairseq 0.12.2 and fairseq-fixed 0.12.3.1 have both installed {folder}/fairseq/version.py"
         ", and one has overwritten the other's files: `pip uninstall` all of them"),
    ],
)  # fmt: skip
def test_another_fairseq_than_the_tested_one_is_named_in_one_line(
    tmp_path, caplog, distributions, warning
):
    for name, version in distributions:
        install(tmp_path, name, version)
    install(tmp_path, "diet-fairseq", "0.3.1", files=["diet_fairseq/version.py"])
    check_distributions(tmp_path, "0.13.2")
    expected = [] if warning is None else [warning.format(folder=tmp_path)]
    assert len(caplog.messages) == len(expected)
    assert "".join(caplog.messages).startswith("".join(expected))


def test_the_fairseq_of_the_tests_is_a_tested_one(caplog):
    check_distributions(Path(fairseq.__file__).parents[1], fairseq.__version__)
    assert caplog.messages == []


@pytest.mark.slow
def test_the_import_of_the_plugin_warns_of_another_fairseq(tmp_path):
    """A checkout of fairseq that has no metadata: its folder comes first in the path."""
    (tmp_path / "fairseq").symlink_to(Path(fairseq.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", "import diet_fairseq, fairseq"], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "fairseq is " in line]
    assert len(lines) == 1
    assert f" in {tmp_path}, but the tests of diet_fairseq run with fairseq-fixed" in lines[0]
