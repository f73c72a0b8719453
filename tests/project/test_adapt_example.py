"""The example of the README's section "Adapt a model"."""

import re
import subprocess
import sys

import pytest
import yaml

from tests.support.pages import ROOT, first_block, section_of

CONFIG = ROOT / "examples/adapt/config.yaml"
MODEL = ROOT / "demo/results/best"


def test_the_readme_shows_the_config_of_the_example():
    shown = yaml.safe_load(first_block(section_of("README.md", "Adapt a model"), "yaml"))
    assert shown == yaml.safe_load(CONFIG.read_text())


@pytest.mark.slow
@pytest.mark.skipif(not MODEL.exists(), reason="needs the demo's model: make demo")
def test_the_demo_s_model_becomes_better_on_longer_sentences(tmp_path):
    for name in ("examples", "demo"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "snakemake", "-s", "examples/Snakefile", "--configfile",
               "examples/adapt/config.yaml", "-j", "2"]  # fmt: skip
    changes = ["--config", "updates=100", "schemes=[start]"]  # a minute on two cores
    subprocess.run([*command, *changes], cwd=tmp_path, check=True)
    table = (tmp_path / "adapt/results/table.md").read_text()
    long, short = table.split("## short")
    rows = [re.findall(r"^\| (as it was|start) \| ([\d.]+)", part, re.MULTILINE)
            for part in (long, short)]  # fmt: skip
    assert [name for name, _ in rows[0]] == ["as it was", "start"]
    assert float(rows[0][1][1]) > float(rows[0][0][1])
    assert len(rows[1]) == 2
