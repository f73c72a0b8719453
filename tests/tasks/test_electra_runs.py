"""ELECTRA as a user trains it: resumed runs, several processes, precision."""

import pytest
import torch

from diet_fairseq import checkpoints
from diet_fairseq.models import diet_electra
from tests.tasks.test_pretraining_runs import (
    assert_processes_train_as_one,
    assert_same_parameters,
    train,
)

ELECTRA = (
    *("--arch", "electra_tupe_r", "--generator-size", 0.5, "--criterion", "electra"),
    *("--leave-unmasked-prob", 0.15, "--random-token-prob", 0, "--batch-size", 4),
)


def without_chance():
    diet_electra.sample = lambda logits, padding: logits.argmax(-1)


@pytest.mark.slow
def test_a_resumed_run_ends_as_an_uninterrupted_one(documents, tmp_path):
    uninterrupted = train(documents, tmp_path / "uninterrupted", *ELECTRA, "--max-update", 4)
    assert uninterrupted.status == 0, uninterrupted.err
    for updates in (2, 4):
        done = train(documents, tmp_path / "resumed", *ELECTRA, "--max-update", updates)
        assert done.status == 0, done.err
    assert "Loaded checkpoint" in done.text
    assert_same_parameters(tmp_path / "resumed", tmp_path / "uninterrupted")
    for name in ("generator_loss", "discriminator_loss", "precision", "recall"):
        assert f'"{name}"' in done.text


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(documents, tmp_path):
    assert_processes_train_as_one(documents, tmp_path, *ELECTRA, first=without_chance)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["bert_tupe_r", "electra_tupe_r"])
def test_a_pretrained_discriminator_starts_another_training(documents, tmp_path, arch):
    pretrained = train(documents, tmp_path / "electra", *ELECTRA, "--bf16", "--max-update", 2)
    assert pretrained.status == 0, pretrained.err
    start = ("--finetune-from-model", tmp_path / "electra/checkpoint_last.pt")
    options = ELECTRA if arch.startswith("electra") else ("--arch", arch, "--batch-size", 4)
    done = train(documents, tmp_path / "on", *options, *start, "--max-update", 2)
    assert done.status == 0, done.err
    message = "loading ELECTRA's discriminator; its head and the generator are dropped"
    assert (message in done.text) == arch.startswith("bert")


@pytest.mark.slow
def test_a_checkpoint_without_its_discriminator_is_refused(documents, tmp_path):
    pretrained = train(documents, tmp_path / "electra", *ELECTRA, "--max-update", 1)
    assert pretrained.status == 0, pretrained.err
    with open(tmp_path / "electra/checkpoint_last.pt", "rb") as file:
        state = checkpoints.read(file, "cpu")
    model = state["model"]
    words = "generator.lm_head.weight"
    generator = {name: value for name, value in model.items() if name.startswith("generator.")}
    larger = model | {words: torch.cat([model[words], model[words][:3]])}
    bert = ("--arch", "bert_tupe_r", "--batch-size", 4)
    stops = "Exception: Cannot load model parameters from checkpoint "
    tokens = "error: --finetune-from-model has 20 tokens (generator.lm_head.weight), more than "
    for options, changed, message in ((bert, generator, stops), (ELECTRA, larger, tokens)):
        torch.save(state | {"model": changed}, tmp_path / "changed.pt")
        start = ("--finetune-from-model", tmp_path / "changed.pt", "--max-update", 2)
        done = train(documents, tmp_path / "run", *options, *start)
        assert done.status == 1
        assert done.last.startswith(message)


REFUSED = {
    ("--arch", "roberta_diet_rel"): (
        "--criterion electra needs a model with a generator: use --arch electra_<scheme> with "
        "--task masked_lm, or --criterion masked_lm"
    ),
    ("--criterion", "masked_lm"): (
        "--arch electra_... needs --criterion electra: give it, or use --arch bert_... or "
        "roberta_... with this criterion"
    ),
}


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("words", REFUSED)
def test_impossible_options_are_refused(documents, tmp_path, words):
    options = dict(zip(ELECTRA[::2], ELECTRA[1::2], strict=True)) | {words[0]: words[1]}
    arguments = [word for pair in options.items() for word in pair]
    if words[0] == "--arch":
        arguments = ["--arch", words[1], "--criterion", "electra", "--batch-size", 4]
    done = train(documents, tmp_path, *arguments, "--max-update", 2)
    assert done.status == 1
    assert done.last == f"error: {REFUSED[words]}"
