"""Pretraining as a user runs it: processes, precision, accumulation, interruptions."""

from functools import partial

import pytest
import torch

from diet_fairseq import checkpoints
from tests.support import commands
from tests.support.commands import kill_on_call, log_lines, run

SMALL = (
    *("--encoder-layers", 2, "--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8),
    *("--encoder-attention-heads", 2, "--tokens-per-sample", 16, "--task", "masked_lm"),
    *("--dropout", 0, "--attention-dropout", 0, "--criterion", "masked_lm", "--seed", 1),
    *("--optimizer", "fused_adamw", "--lr", 0.01, "--lr-scheduler", "fixed"),
    *("--num-workers", 0, "--log-format", "json", "--log-interval", 1, "--cpu"),
)
DIET = ("--arch", "roberta_diet_rel")


def train(documents, folder, *options, **running):
    return run("train", documents, *SMALL, *options, "--save-dir", folder, **running)


def losses(done):
    """Update -> loss; with several processes the first one prints it."""
    return {line["num_updates"]: float(line["loss"]) for line in log_lines(done) if "ups" in line}


def parameters(folder):
    with open(folder / "checkpoint_last.pt", "rb") as file:
        return checkpoints.read(file, "cpu")["model"]


def assert_same_parameters(folder, expected):
    ours, theirs = parameters(folder), parameters(expected)
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


def together(documents, folder, *options, **running):
    """Two processes that train together."""
    words = (*SMALL, *options, "--load-checkpoint-on-all-dp-ranks", "--save-dir", folder)
    return commands.together(documents, *words, **running)


def assert_processes_train_as_one(documents, folder, *options, first=None):
    """Two processes have the losses of one that accumulates two batches."""
    options = (*options, "--max-update", 6)
    processes = together(documents, folder / "two", *options, first=(first, first))
    alone = train(documents, folder / "alone", *options, "--update-freq", 2, first=first)
    expected = losses(alone)
    assert len(expected) == 6
    # the sum of gradients has another order
    assert max(map(losses, processes), key=len) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["roberta_diet_rel", "bert_tupe_r"])
def test_two_processes_have_the_losses_of_one(documents, tmp_path, arch):
    assert_processes_train_as_one(documents, tmp_path, "--arch", arch, "--batch-size", 4)


@pytest.mark.slow
def test_a_killed_process_ends_the_run_and_the_run_resumes(documents, tmp_path):
    options = (*DIET, "--batch-size", 4, "--max-update", 8, "--save-interval-updates", 2)
    uninterrupted = together(documents, tmp_path / "uninterrupted", *options)
    assert [done.status for done in uninterrupted] == [0, 0], uninterrupted[0].err
    kill = partial(kill_on_call, "fairseq.trainer:Trainer.train_step", 6)
    survivor, killed = together(documents, tmp_path / "killed", *options, first=(None, kill))
    assert (survivor.status, killed.status) == (1, -9)
    resumed = together(documents, tmp_path / "killed", *options)
    assert [done.status for done in resumed] == [0, 0], resumed[0].err + resumed[1].err
    assert "Loaded checkpoint" in resumed[0].text
    assert_same_parameters(tmp_path / "killed", tmp_path / "uninterrupted")


@pytest.mark.slow
def test_accumulated_gradients_are_those_of_one_large_batch(documents, tmp_path):
    """Every update reads all of the text, at once or in batches of eight."""
    by_size = []
    for size, every in ((1000, 1), (8, 100)):
        batches = ("--batch-size", size, "--update-freq", every, "--max-update", 4)
        batches += ("--required-batch-size-multiple", 1, "--disable-validation")
        by_size.append(losses(train(documents, tmp_path / str(size), *DIET, *batches)))
    assert len(by_size[0]) == 4
    assert by_size[0] == pytest.approx(by_size[1], rel=1e-5)


@pytest.mark.slow
def test_bf16_trains_saves_and_resumes(documents, tmp_path):
    options = (*DIET, "--batch-size", 8, "--bf16")
    for updates in (4, 8):
        done = train(documents, tmp_path, *options, "--max-update", updates)
        assert done.status == 0, done.err
    assert "Loaded checkpoint" in done.text
    assert losses(done)
    assert all(value.isfinite().all() for value in parameters(tmp_path).values())


@pytest.fixture(scope="module")
def stock(documents, tmp_path_factory):
    """A checkpoint of fairseq's own RoBERTa."""
    folder = tmp_path_factory.mktemp("stock")
    done = train(documents, folder, "--arch", "roberta", "--batch-size", 8, "--max-update", 4)
    assert done.status == 0, done.err
    return folder / "checkpoint_last.pt"


@pytest.mark.slow
def test_an_encoder_starts_from_a_stock_roberta_and_resumes(documents, stock, tmp_path):
    options = (*DIET, "--batch-size", 8, "--finetune-from-model", stock)
    for updates, message in ((2, "warm start: "), (4, "Loaded checkpoint")):
        done = train(documents, tmp_path, *options, "--max-update", updates)
        assert done.status == 0, done.err
        assert message in done.text
    assert "warm start: " not in done.text  # now it has its own
    validated = run("validate", documents, "--path", tmp_path / "checkpoint_last.pt", "--task",
                    "masked_lm", "--batch-size", 8, "--tokens-per-sample", 16, "--cpu")  # fmt: skip
    assert validated.status == 0, validated.err
    assert "warm start: " not in validated.text


@pytest.mark.slow
def test_a_stock_roberta_is_not_resumed_as_another_model(documents, stock, tmp_path):
    done = train(documents, tmp_path, *DIET, "--batch-size", 8, "--restore-file", stock)
    assert done.status == 1
    assert f"Cannot load model parameters from checkpoint {stock}" in done.last


@pytest.mark.slow
def test_a_warm_started_run_is_not_resumed_with_other_positions(documents, stock, tmp_path):
    options = ("--batch-size", 8, "--max-update", 2, "--finetune-from-model", stock)
    done = train(documents, tmp_path, "--arch", "roberta_learned", *options)
    assert done.status == 0, done.err
    done = train(documents, tmp_path, "--arch", "roberta_t5", *options)
    assert done.status == 1
    last = tmp_path / "checkpoint_last.pt"
    assert f"Cannot load model parameters from checkpoint {last}" in done.last


REFUSED = {
    "--arch roberta_diet_rel --no-lm-head": "--criterion masked_lm trains the head for masked "
    "words, which --no-lm-head leaves out: omit --no-lm-head to train a new head",
    "--arch bert_diet_rel --nsp": "--nsp needs --criterion masked_lm_nsp, but the criterion is "
    "masked_lm: give --criterion masked_lm_nsp, or omit --nsp",
    "--arch bert_diet_rel --task masked_lm_nsp": "--task masked_lm_nsp needs --criterion "
    "masked_lm_nsp, but the criterion is masked_lm: give --criterion masked_lm_nsp, or omit --task "
    "masked_lm_nsp",
    "--arch bert_diet_rel --mha-heads-to-keep 1": "--mha-heads-to-keep 1 can't be combined with "
    "position schemes: leave it out, or use fairseq's own model",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("line", REFUSED)
def test_impossible_pretraining_is_refused(documents, tmp_path, line):
    done = train(documents, tmp_path, "--batch-size", 8, "--max-update", 2, *line.split())
    assert done.status == 1
    assert done.last == f"error: {REFUSED[line]}"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_model_of_next_sentences_is_validated_as_a_language_model(documents, tmp_path):
    pairs = ("--task", "masked_lm_nsp", "--criterion", "masked_lm_nsp", "--nsp")
    options = ("--arch", "bert_diet_rel", "--batch-size", 8, "--max-update", 2)
    done = train(documents, tmp_path, *options, *pairs)
    assert done.status == 0, done.err
    validated = run("validate", documents, "--path", tmp_path / "checkpoint_last.pt", "--task",
                    "masked_lm", "--batch-size", 8, "--tokens-per-sample", 16, "--cpu")  # fmt: skip
    assert validated.status == 0, validated.err


@pytest.mark.slow
def test_a_resumed_run_masks_and_orders_as_an_uninterrupted_one(documents, tmp_path):
    options = (*DIET, "--batch-size", 8, "--max-epoch", 3, "--save-interval-updates", 4)
    assert train(documents, tmp_path / "uninterrupted", *options).status == 0
    kill = partial(kill_on_call, "fairseq.trainer:Trainer.train_step", 7)
    killed = train(documents, tmp_path / "killed", *options, first=kill)
    assert killed.status == -9
    assert train(documents, tmp_path / "killed", *options).status == 0
    assert_same_parameters(tmp_path / "killed", tmp_path / "uninterrupted")
