"""ELECTRA as a user trains it: runs that go on, several processes, precision."""

import pytest
import torch

from diet_fairseq import checkpoints
from diet_fairseq.models import diet_electra
from tests.support import commands
from tests.tasks.test_pretraining_runs import losses, parameters, together, train

ELECTRA = (
    *("--arch", "electra_tupe_r", "--generator-size", 0.5, "--criterion", "electra"),
    *("--leave-unmasked-prob", 0.15, "--random-token-prob", 0, "--batch-size", 4),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.documents(tmp_path_factory.mktemp("documents"))


def without_chance():
    diet_electra.sample = lambda logits, padding: logits.argmax(-1)


@pytest.mark.slow
def test_a_resumed_run_goes_on_as_one_that_was_not_interrupted(data, tmp_path):
    whole = train(data, tmp_path / "whole", *ELECTRA, "--max-update", 4)
    assert whole.status == 0, whole.err
    for updates in (2, 4):
        done = train(data, tmp_path / "cut", *ELECTRA, "--max-update", updates)
        assert done.status == 0, done.err
    assert "Loaded checkpoint" in done.text
    expected, found = (parameters(tmp_path / name) for name in ("whole", "cut"))
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    for name in ("generator_loss", "discriminator_loss", "precision", "recall"):
        assert f'"{name}"' in done.text


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one_that_accumulates_two_batches(data, tmp_path):
    options = (*ELECTRA, "--max-update", 6)
    both = together(data, tmp_path / "two", *options, first=(without_chance, without_chance))
    assert [done.status for done in both] == [0, 0], both[0].err + both[1].err
    one = train(data, tmp_path / "one", *options, "--update-freq", 2, first=without_chance)
    assert one.status == 0, one.err
    found = losses(both[0]) or losses(both[1])
    assert len(found) == 6
    assert found == losses(one)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["bert_tupe_r", "electra_tupe_r"])
def test_a_pretrained_discriminator_is_trained_on(data, tmp_path, arch):
    pretrained = train(data, tmp_path / "electra", *ELECTRA, "--bf16", "--max-update", 2)
    assert pretrained.status == 0, pretrained.err
    start = ("--finetune-from-model", tmp_path / "electra/checkpoint_last.pt")
    options = ELECTRA if arch.startswith("electra") else ("--arch", arch, "--batch-size", 4)
    done = train(data, tmp_path / "on", *options, *start, "--max-update", 2)
    assert done.status == 0, done.err
    left = "loading ELECTRA's discriminator; its head and the generator are dropped"
    assert (left in done.text) == arch.startswith("bert")


@pytest.mark.slow
def test_a_checkpoint_that_is_no_whole_discriminator_is_refused_in_a_line(data, tmp_path):
    pretrained = train(data, tmp_path / "whole", *ELECTRA, "--max-update", 1)
    assert pretrained.status == 0, pretrained.err
    with open(tmp_path / "whole/checkpoint_last.pt", "rb") as file:
        state = checkpoints.read(file, "cpu")
    whole = state["model"]
    words = "generator.lm_head.weight"
    alone = {name: value for name, value in whole.items() if name.startswith("generator.")}
    other = whole | {words: torch.cat([whole[words], whole[words][:3]])}
    bert = ("--arch", "bert_tupe_r", "--batch-size", 4)
    for options, model, said in (
        (bert, alone, "error: the checkpoint has an ELECTRA's generator and no discriminator: "),
        (ELECTRA, other, "Exception: Cannot load model parameters from checkpoint "),
    ):
        torch.save(state | {"model": model}, tmp_path / "other.pt")
        start = ("--finetune-from-model", tmp_path / "other.pt", "--max-update", 2)
        done = train(data, tmp_path / "run", *options, *start)
        assert done.status == 1
        assert done.last.startswith(said)


REFUSED = {
    ("--arch", "roberta_diet_rel"): (
        "--criterion electra needs a model with a generator: take --arch electra_<scheme> with "
        "--task masked_lm, or --criterion masked_lm"
    ),
    ("--criterion", "masked_lm"): (
        "electra_... is pretrained by --criterion electra: take that, or an --arch bert_... or "
        "roberta_... for the criterion you gave"
    ),
    ("--generator-size", 3): (
        "--generator-size must be above 0 and at most 1, and give a width that its heads (one for "
        "every 64) divide, but 3 of 8 is 24 for 1 heads: take 0.25 or 1"
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_can_not_work_is_refused(data, tmp_path, words):
    options = dict(zip(ELECTRA[::2], ELECTRA[1::2], strict=True)) | {words[0]: words[1]}
    given = [word for pair in options.items() for word in pair]
    if words[0] == "--arch":
        given = ["--arch", words[1], "--criterion", "electra", "--batch-size", 4]
    done = train(data, tmp_path, *given, "--max-update", 2)
    assert done.status == 1
    assert done.last == f"error: {REFUSED[words]}"
