"""README's config and commands lead from a user's texts to a model, the quickstart's go on."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml
from jsonschema import validate  # type: ignore[import-untyped]

from tests.support.texts import corpus

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "docs" / "quickstart.md"
#: numbers for a corpus of a hundred sentences; the keys stay
SMALLER = "vocabulary: 100\nbatch: 400\nwarmup: 4\n"
RUN = re.compile(r"^<!-- run -->\n```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block(language: str) -> str:
    """The first block in a language of the section on one's own data."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Train on your own data\n")[1]
    return text.split(f"```{language}\n")[1].split("```")[0]


def run(program: list[str], folder: Path) -> str:
    """What a program prints in a folder."""
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
        program,
        cwd=folder,
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_config_has_eight_lines():
    assert block("yaml").count("\n") == 8


def test_the_config_of_the_quickstart_fits_the_schema():
    [config] = re.findall(r"^```yaml\n(.*?)^```$", QUICKSTART.read_text(), re.MULTILINE | re.DOTALL)
    schema = (ROOT / "examples" / "rules" / "translation.schema.yaml").read_text()
    validate(yaml.safe_load(config), yaml.safe_load(schema))


@pytest.mark.slow
def test_the_commands_for_one_s_own_data_train_and_translate(tmp_path):
    config, changes = re.subn(r"updates: \d+", "updates: 6", block("yaml"))
    assert changes == 1
    (tmp_path / "mine.yaml").write_text(config + SMALLER)
    corpus(tmp_path / "text", train=100, odd=False)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert "| diet_rel, tiny |" in run(["bash", "-e", "-c", block("sh")], tmp_path)
    assert len([*tmp_path.glob("mine/runs/*/model.json")]) == 1

    (tmp_path / "demo").symlink_to("mine")
    programs = RUN.findall(QUICKSTART.read_text(encoding="utf-8"))
    assert len(programs) == 4
    for language, program in programs:
        start = ["bash", "-e", "-c"] if language == "sh" else [sys.executable, "-c"]
        assert run([*start, program], tmp_path)
    assert (tmp_path / "heads" / "index.html").exists()
