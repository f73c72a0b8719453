"""A new user's languages: FLORES' dev set from raw text to a table."""

import pytest

from diet_fairseq.text.lines import read_lines
from tests.support.texts import write
from tests.workflows.conftest import Experiment

pytestmark = pytest.mark.slow

FILES = {"th": "th.gz", "zho_Hans": "zh", "en": "en", "eng": "en", "kor_Hang": "ko"}


@pytest.mark.parametrize(
    ("pair", "tokenizer"),
    [(("th", "zho_Hans"), "zh"), (("th", "en"), "13a"), (("eng", "kor_Hang"), "ko-mecab-")],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_language_of_any_script_is_trained_and_scored(pair, tokenizer, tmp_path, shared_data):
    (tmp_path / "text").mkdir()
    for language in pair:
        lines = list(read_lines(shared_data / "flores-dev" / f"flores-dev.{FILES[language]}"))
        for split, part in (
            ("train", lines[:797]), ("valid", lines[797:897]), ("test", lines[897:])
        ):  # fmt: skip
            write(tmp_path / "text" / f"{split}.{language}", part)
    experiment = Experiment(
        tmp_path, languages=[*pair], vocabulary=4000, updates=20, save_interval=10,
    )  # fmt: skip
    output = experiment.made()
    assert "kept               797  100.0%" in output
    assert "warning" not in output
    assert f"|tok:{tokenizer}" in experiment.path("out/results/table.md").read_text()
    lines = list(read_lines(experiment.path("out/runs/*/evaluation-test/translations.txt")))
    assert len(lines) == 100
