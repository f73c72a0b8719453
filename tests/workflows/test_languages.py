"""A new user's languages: FLORES' dev set from raw text to a table."""

import pytest

from diet_fairseq.text.lines import read_lines
from tests.support.texts import write
from tests.workflows.conftest import Experiment

pytestmark = pytest.mark.slow


def test_scripts_without_spaces_are_trained_and_scored(tmp_path, shared_data):
    (tmp_path / "text").mkdir()
    for file, language in (("th.gz", "th"), ("zh", "zho_Hans")):
        lines = list(read_lines(shared_data / "flores-dev" / f"flores-dev.{file}"))
        for split, part in (
            ("train", lines[:797]), ("valid", lines[797:897]), ("test", lines[897:])
        ):  # fmt: skip
            write(tmp_path / "text" / f"{split}.{language}", part)
    experiment = Experiment(
        tmp_path, languages=["th", "zho_Hans"], vocabulary=4000, updates=20, save_interval=10,
    )  # fmt: skip
    output = experiment.made()
    assert "kept               797  100.0%" in output
    assert "warning" not in output
    assert "|tok:zh|" in experiment.path("out/results/table.md").read_text()
    lines = list(read_lines(experiment.path("out/runs/*/evaluation-test/translations.txt")))
    assert len(lines) == 100
