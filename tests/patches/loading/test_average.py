"""An average of parameters begins at those of the checkpoint that training starts from."""

import pytest
import torch

from diet_fairseq.patches import loading
from tests.support import commands
from tests.support.commands import TINY, run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def plain(data):
    """The folder of a run without an average."""
    folder = data.parent / "plain"
    done = run("train", data, *TINY, "--max-update", 1, "--save-dir", folder)
    assert done.status == 0, done.last
    return folder


@pytest.mark.parametrize("more", [[], ["--ema-fp32"]], ids=["", "fp32"])
@pytest.mark.parametrize("start", ["--finetune-from-model", "--restore-file"])
def test_an_average_begins_at_the_checkpoint_s_parameters(start, more, plain, data, tmp_path):
    stays = ("--store-ema", "--ema-decay", 1)  # nothing is added to it
    done = run("train", data, *TINY, "--max-update", 2, "--save-dir", tmp_path, *stays, *more,
               start, plain / "checkpoint_last.pt", "--disable-validation")  # fmt: skip
    assert done.status == 0, done.last
    before, after = (loading.read(folder / "checkpoint_last.pt") for folder in (plain, tmp_path))
    extra = after["extra_state"]
    # fairseq leaves the version of its encoder's format out of an average
    parameters = {name: v for name, v in before["model"].items() if not name.endswith("version")}
    for name, value in parameters.items():
        assert torch.equal(extra["ema"][name], value), name
        if more and torch.is_floating_point(value):
            assert torch.equal(extra["ema_fp32_params"][name], value), name
    assert not all(torch.equal(after["model"][name], v) for name, v in parameters.items())
