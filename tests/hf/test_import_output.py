"""`import hf` prints its own lines, and nothing of the libraries that it calls."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")

from tests.hf.conftest import take_back
from tests.support import originals


def expected_lines(out: Path, arch: str) -> str:
    """The output of an import of BERT without new or unread parameters."""
    return (
        "compared with transformers as text: 43 sentences, 3 masked words\n"
        f"wrote {out}/model.pt: use it with --user-dir diet_fairseq and the data {out}\n"
        f"to train on: --arch {arch} --finetune-from-model {out}/model.pt "
        f"$(cat {out}/options.txt)\n"
    )


def test_an_import_raises_no_warnings(translation_folder, tmp_path, capfd):
    folder = originals.bert(tmp_path / "folder")
    capfd.readouterr()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        take_back(folder, tmp_path / "out")
        assert capfd.readouterr() == (expected_lines(tmp_path / "out", "bert_learned"), "")
        take_back(translation_folder, tmp_path / "ours")
    _, first, _ = expected_lines(tmp_path / "ours", "").splitlines(keepends=True)
    assert capfd.readouterr() == (first, "")
    assert [str(warning.message) for warning in caught] == []


@pytest.mark.slow
def test_the_command_prints_its_own_lines_alone(tmp_path):
    folder = originals.bert(tmp_path / "folder")
    words = [sys.executable, "-m", "diet_fairseq", "import", "hf", folder, tmp_path / "out"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout == expected_lines(tmp_path / "out", "bert_learned")
    assert done.stderr == ""
    assert done.returncode == 0
