"""fairseq-validate takes the checkpoint's task and batches, unless it is told of others."""

import re

import pytest

from tests.support import commands
from tests.support.commands import TINY, run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Preprocessed data, a checkpoint, and the loss that training ended with."""
    folder = tmp_path_factory.mktemp("corpus")
    data = commands.corpus(folder)
    done = run("train", data, *TINY, "--max-update", 2, "--save-dir", folder / "save")
    [loss] = re.findall(r'"valid_loss": "([\d.]+)"', done.text)
    return data, folder / "save" / "checkpoint_last.pt", loss


def loss_of(done):
    assert done.status == 0, done.err
    return re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", done.text)[-1]


@pytest.mark.slow
def test_the_checkpoint_s_task_and_batches_are_taken(trained):
    data, path, loss = trained
    assert loss_of(run("validate", data, "--cpu", "--path", path)) == loss
    told = ("--task", "translation", "--batch-size", 3)
    assert loss_of(run("validate", data, "--cpu", "--path", path, *told)) == loss


@pytest.mark.slow
def test_other_batches_are_taken_at_their_word(trained):
    """A sentence a batch makes eight of them; the training's size would make fewer."""
    data, path, loss = trained
    done = run("validate", data, "--cpu", "--path", path, "--batch-size", 1,
               "--log-format", "simple", "--log-interval", 1)  # fmt: skip
    assert loss_of(done) == loss
    assert "7 / 8" in done.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--path is needed: name the checkpoint to validate"),
        (("--path", "none.pt"), "there is no checkpoint none.pt: check --path"),
    ],
)
def test_what_is_missing_is_said(trained, options, said):
    done = run("validate", trained[0], "--cpu", *options)
    assert (done.status, done.last) == (1, f"error: {said}")


@pytest.mark.slow
def test_a_language_model_is_validated_as_one(tmp_path):
    data = commands.documents(tmp_path)
    done = run("train", data, "--task", "masked_lm", "--criterion", "masked_lm", "--arch",
               "roberta_diet_rel_tiny", "--batch-size", 4, "--tokens-per-sample", 16, "--cpu",
               "--optimizer", "adam", "--lr", "0.01", "--max-update", 1, "--num-workers", 0,
               "--save-dir", tmp_path / "save")  # fmt: skip
    assert done.status == 0, done.err
    done = run("validate", data, "--cpu", "--path", tmp_path / "save" / "checkpoint_last.pt")
    assert float(loss_of(done)) > 0
