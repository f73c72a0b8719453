"""fairseq on today's PyTorch and NumPy: it works, and says nothing of its old interfaces."""

from functools import partial

import pytest

from tests.support import commands
from tests.support.commands import TINY, run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.slow
def test_fairseq_says_nothing_about_old_interfaces(data, tmp_path):
    train = partial(run, "train", data, *TINY, "--max-update", 2, "--disable-validation")
    assert "Warning" not in train("--save-dir", tmp_path).err
    assert "Warning" in train("--save-dir", tmp_path / "2", plugin=False).err  # the control
    path = tmp_path / "checkpoint_last.pt"
    assert "Warning" not in run("generate", data, "--path", path, "--cpu", "--max-len-b", 5).err


def test_masked_language_models_train_with_numpy_2(data, tmp_path):
    (data / "dict.txt").write_text((data / "dict.de.txt").read_text())
    for split in ("train", "valid"):
        for end in ("bin", "idx"):
            (data / f"{split}.{end}").write_bytes((data / f"{split}.de-en.de.{end}").read_bytes())
    sizes = [f"--encoder-{size}=2" for size in ("layers", "attention-heads")]
    sizes += [f"--encoder-{size}=8" for size in ("embed-dim", "ffn-embed-dim")]
    masked = ("--task", "masked_lm", "--criterion", "masked_lm", "--sample-break-mode", "eos")
    rest = ("--max-update", 1, "--optimizer", "adam", "--lr", "0.1", "--cpu", "--batch-size", 8)
    place = ("--tokens-per-sample", 16, "--save-dir", tmp_path)
    done = run("train", data, "--arch", "roberta", *sizes, *masked, *rest, *place)
    assert done.status == 0, done.err
