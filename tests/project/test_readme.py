"""The README's commands do what it says, from a user's texts to translations."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.support.texts import corpus

ROOT = Path(__file__).parents[2]
#: numbers for a corpus of a hundred sentences; the flags stay
SMALLER = {
    "-s": "60",
    "--warmup-updates": "4",
    "--max-update": "6",
    "--max-tokens": "400",
    "--save-interval-updates": "1",
}


def commands(section: str) -> str:
    """The first block of commands of a section."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split(f"\n## {section}\n")[1]
    return text.split("```sh\n")[1].split("```")[0]


@pytest.mark.slow
def test_the_commands_for_one_s_own_data_end_and_translate(tmp_path):
    program = commands("Train on your own data")
    for flag, number in SMALLER.items():
        program, found = re.subn(rf"(?<=\s{flag} )[\d.e-]+", number, program)
        assert found == 1, flag
    corpus(tmp_path, train=100, odd=False)
    (tmp_path / "diet_fairseq").symlink_to(ROOT / "diet_fairseq")  # found so where it is installed
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
        ["bash", "-e", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^H-\d+\t", done.stdout, re.MULTILINE)) == 12
    kept = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    intervals = {name for name in kept if re.fullmatch(r"checkpoint_\d+_\d+\.pt", name)}
    assert len(intervals) == 5
    assert kept - intervals == {"checkpoint_best.pt", "checkpoint_last.pt", "average.pt"}
