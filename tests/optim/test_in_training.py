"""Optimizers and the schedule in fairseq-train: logged rates, and killed runs that resume."""

from functools import partial

import pytest
import torch

from diet_fairseq import checkpoints
from diet_fairseq.patches.precision import EXACT
from tests.support.commands import (
    TINY,
    assert_same_tensors,
    kill_on_call,
    log_lines,
    run,
    saved_tensors,
)

pytestmark = pytest.mark.slow

TRAIN = (
    *TINY, "--lr-scheduler", "linear_ratio", "--warmup-ratio", "0.3", "--max-epoch", "2",
    "--save-interval-updates", "2", "--keep-interval-updates", "1",
)  # fmt: skip
OPTIMIZERS = {
    "fused_adamw": ("--optimizer", "fused_adamw", "--adam-betas", "(0.9, 0.98)",
                    "--adam-eps", "1e-6", "--weight-decay", "0.01"),
    "lamb_torch": ("--optimizer", "lamb_torch", "--lamb-betas", "(0.9, 0.98)",
                   "--lamb-eps", "1e-6", "--weight-decay", "0.01"),
}  # fmt: skip
BF16 = ("--bf16", "--arch", "transformer_t5_tiny")
FP16 = ("--fp16", "--fp16-no-flatten-grads")
PRECISIONS = pytest.mark.parametrize("precision", [(), BF16, FP16], ids=["float32", "bf16", "fp16"])
IN_TRAINING = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=list(OPTIMIZERS))


def logged(done, key):
    """All values of a key in fairseq's log, in their order."""
    return [float(line[key]) for line in log_lines(done) if key in line]


@pytest.mark.parametrize(
    ("optimizer", "precision"),
    [("fused_adamw", ()), ("fused_adamw", BF16), ("fused_adamw", FP16), ("lamb_torch", BF16)],
    ids=["fused_adamw-float32", "fused_adamw-bf16", "fused_adamw-fp16", "lamb_torch-bf16"],
)
def test_a_killed_run_ends_as_if_uninterrupted(optimizer, precision, data, tmp_path):
    train = partial(run, "train", data, *TRAIN, *OPTIMIZERS[optimizer], *precision, "--save-dir")
    uninterrupted = train(tmp_path / "uninterrupted")
    # Four batches an epoch; the rate is that of the update to come.
    rates = [0.005, 0.01, 0.01 * 5 / 6, 0.01 * 4 / 6, 0.005, 0.01 * 2 / 6, 0.01 / 6, 0]
    assert logged(uninterrupted, "lr") == pytest.approx(rates, abs=1e-7)
    in_epoch_two = ("fairseq.trainer:Trainer.train_step", 7)
    killed = train(tmp_path / "killed", first=partial(kill_on_call, *in_epoch_two))
    assert killed.status == -9, killed.err
    resumed = train(tmp_path / "killed")
    assert "Loaded checkpoint" in resumed.text
    assert logged(resumed, "lr") == pytest.approx(rates[6:], abs=1e-7)
    assert_same_tensors(tmp_path / "killed", tmp_path / "uninterrupted")


def test_exact_parameters_of_another_model_are_ignored(data, tmp_path):
    train = partial(run, "train", data, *TRAIN, *BF16, *OPTIMIZERS["fused_adamw"], "--save-dir")
    assert train(tmp_path, "--max-update", 2).status == 0
    path = tmp_path / "checkpoint_last.pt"
    state = torch.load(path, weights_only=False)  # this test wrote it
    state["last_optimizer_state"][EXACT][0] += 1
    torch.save(state, path)
    done = train(tmp_path, "--max-update", 3)
    assert done.status == 0, done.err
    assert "the checkpoint's float32 parameters do not round to its " in done.text


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "updates"),
    [
        (("--max-epoch", "3", "--update-freq", "1,3"), 4 + 2 + 2),
        (("--max-epoch", "3", "--update-freq", "1,3", "--skip-remainder-batch"), 3 + 1 + 1),
        (("--max-epoch", "2", "--max-update", "5"), 5),
    ],
)
def test_the_rate_is_zero_when_training_ends(options, updates, data, tmp_path):
    done = run("train", data, *TRAIN, *OPTIMIZERS["fused_adamw"], *options, "--save-dir", tmp_path)
    rates = logged(done, "lr")
    assert len(rates) == updates
    assert rates[-1] == 0 < rates[-2]
    assert max(rates) == 0.01


def test_epochs_of_several_shards_are_refused(data, tmp_path):
    done = run(
        "train", f"{data}:{data}", *TRAIN, *OPTIMIZERS["fused_adamw"], "--save-dir", tmp_path
    )
    assert (done.status, done.last) == (
        1,
        "error: --lr-scheduler linear_ratio can't convert --max-epoch 2 into updates, because "
        "epochs differ in their number of batches: give --max-update",
    )


ON_GPU = [argument for argument in TRAIN if argument != "--cpu"]


@pytest.mark.gpu
@IN_TRAINING
@PRECISIONS
def test_on_a_gpu_a_killed_run_resumes(optimizer, precision, data, tmp_path):
    train = partial(run, "train", data, *ON_GPU, *optimizer, *precision, "--save-dir")
    assert train(tmp_path / "uninterrupted").status == 0
    in_epoch_two = ("fairseq.trainer:Trainer.train_step", 7)
    assert train(tmp_path / "killed", first=partial(kill_on_call, *in_epoch_two)).status == -9
    resumed = train(tmp_path / "killed")
    assert resumed.status == 0, resumed.err
    values, expected = (saved_tensors(tmp_path / name) for name in ("killed", "uninterrupted"))
    for name in (n for n in values if not n[0].isdigit()):  # GPUs add in any order
        ours, theirs = values[name].float(), expected[name].float()
        torch.testing.assert_close(ours, theirs, rtol=0.01, atol=0.005)


@pytest.mark.gpu
def test_on_a_gpu_fp16_survives_an_overflow(data, tmp_path):
    """Flat parameters, and a scale so large that the first updates are left out."""
    done = run("train", data, *ON_GPU, *OPTIMIZERS["fused_adamw"], "--save-dir", tmp_path,
               "--fp16", "--fp16-init-scale", 2**22, "--fp16-scale-tolerance", "0")  # fmt: skip
    assert done.status == 0, done.err
    assert "gradient overflow detected" in done.text
    with open(tmp_path / "checkpoint_last.pt", "rb") as file:
        state = checkpoints.read(file, "cpu")
    counts = [moments["step"] for moments in state["last_optimizer_state"]["state"].values()]
    assert counts == [state["optimizer_history"][-1]["num_updates"]]
