"""The README's config and commands do what it says, from a user's texts to translations."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.support.texts import corpus

ROOT = Path(__file__).parents[2]
#: numbers for a corpus of a hundred sentences; the keys stay
SMALLER = "vocabulary: 100\nbatch: 400\nwarmup: 4\n"


def block(language: str) -> str:
    """The first block in a language of the section on one's own data."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Train on your own data\n")[1]
    return text.split(f"```{language}\n")[1].split("```")[0]


def test_the_config_has_eight_lines():
    assert block("yaml").count("\n") == 8


@pytest.mark.slow
def test_the_commands_for_one_s_own_data_train_and_translate(tmp_path):
    config, changes = re.subn(r"updates: \d+", "updates: 6", block("yaml"))
    assert changes == 1
    (tmp_path / "mine.yaml").write_text(config + SMALLER)
    corpus(tmp_path / "text", train=100, odd=False)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
        ["bash", "-e", "-c", block("sh")],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert "| diet_rel, tiny |" in done.stdout
    assert len([*tmp_path.glob("mine/runs/*/model.json")]) == 1
