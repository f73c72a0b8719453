"""A new user's languages: FLORES' dev set from raw text to a table."""

import pytest

from diet_fairseq.text.lines import read_lines
from tests.support.texts import write
from tests.workflows.conftest import Experiment

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("source", "target", "tokenizer"),
    [(("en", "eng_Latn"), ("zh", "zho_Hans"), "zh"), (("th.gz", "th"), ("en", "en"), "13a")],
)
def test_a_script_without_spaces_is_trained_and_scored(
    source, target, tokenizer, tmp_path, shared_data
):
    (tmp_path / "text").mkdir()
    for file, language in (source, target):
        lines = list(read_lines(shared_data / "flores-dev" / f"flores-dev.{file}"))
        for split, part in (
            ("train", lines[:797]), ("valid", lines[797:897]), ("test", lines[897:])
        ):  # fmt: skip
            write(tmp_path / "text" / f"{split}.{language}", part)
    experiment = Experiment(
        tmp_path, languages=[source[1], target[1]], vocabulary=4000, updates=20, save_interval=10,
    )  # fmt: skip
    output = experiment.made()
    assert "kept               797  100.0%" in output
    assert "warning" not in output
    assert f"|tok:{tokenizer}|" in experiment.path("out/results/table.md").read_text()
    lines = list(read_lines(experiment.path("out/runs/*/evaluation-test/translations.txt")))
    assert len(lines) == 100
