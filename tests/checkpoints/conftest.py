"""A checkpoint of stock fairseq, which the tests read and edit copies of."""

from pathlib import Path

import pytest

from tests.support.commands import TINY, run


@pytest.fixture(scope="session")
def stock(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that fairseq wrote without us, with BLEU's arrays in its meters."""
    folder = tmp_path_factory.mktemp("stock")
    bleu = ("--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 5}')
    done = run("train", data, *TINY, "--max-update", 2, *bleu, "--save-dir", folder, plugin=False)
    assert done.status == 0, done.err
    return folder / "checkpoint_last.pt"
