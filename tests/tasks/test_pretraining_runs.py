"""Pretraining as a user runs it: processes, precision, accumulation, how runs break off."""

import json
import re
from argparse import Namespace
from functools import partial

import pytest
import torch
from diet_fairseq.patches.explaining import mistake_behind
from diet_fairseq.patches.runs import ON_CPUS

from diet_fairseq.patches import runs
from tests.support import commands
from tests.support.commands import kill_on_call, run

SMALL = (
    *("--encoder-layers", 2, "--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8),
    *("--encoder-attention-heads", 2, "--tokens-per-sample", 16, "--task", "masked_lm"),
    *("--dropout", 0, "--attention-dropout", 0, "--criterion", "masked_lm", "--seed", 1),
    *("--optimizer", "fused_adamw", "--lr", 0.01, "--lr-scheduler", "fixed"),
    *("--num-workers", 0, "--log-format", "json", "--log-interval", 1, "--cpu"),
)
DIET = ("--arch", "roberta_diet_rel")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.documents(tmp_path_factory.mktemp("documents"))


def train(data, folder, *options, **more):
    return run("train", data, *SMALL, *options, "--save-dir", folder, **more)


def losses(done):
    """The loss of every update, as printed; with several processes the first one prints."""
    lines = [json.loads(text) for text in re.findall(r"\{\"epoch\".*\}", done.text)]
    return {line["num_updates"]: line["loss"] for line in lines if "ups" in line}


def parameters(folder):
    with open(folder / "checkpoint_last.pt", "rb") as file:
        return checkpoints.read(file, "cpu")["model"]


def together(data, folder, *options, first=(None, None), limit=120):
    """Two processes that train together."""
    given = (*SMALL, *options, "--load-checkpoint-on-all-dp-ranks", "--save-dir", folder)
    return commands.together(data, *given, first=first, limit=limit)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["roberta_diet_rel", "bert_diet_abs", "bert_tupe_r"])
def test_two_processes_have_the_losses_of_one_that_accumulates_two_batches(data, tmp_path, arch):
    options = ("--arch", arch, "--batch-size", 4, "--max-update", 6)
    both = together(data, tmp_path / "two", *options)
    assert [done.status for done in both] == [0, 0], both[0].err + both[1].err
    one = train(data, tmp_path / "one", *options, "--update-freq", 2)
    assert one.status == 0, one.err
    found = losses(both[0]) or losses(both[1])
    assert len(found) == 6
    assert found == losses(one)


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_run_in_words_and_the_run_resumes(data, tmp_path):
    options = (*DIET, "--batch-size", 4, "--max-update", 8, "--save-interval-updates", 2)
    whole = together(data, tmp_path / "whole", *options)
    assert [done.status for done in whole] == [0, 0], whole[0].err + whole[1].err
    kill = partial(kill_on_call, "fairseq.trainer:Trainer.train_step", 6)
    survivor, killed = together(data, tmp_path / "cut", *options, first=(None, kill))
    assert killed.status == -9
    assert survivor.status == 1
    assert survivor.last.removeprefix("[rank0]: ") == (
        "error: another process of this run has ended: see its output, and start all of "
        "them again to resume from the last checkpoint"
    )
    resumed = together(data, tmp_path / "cut", *options)
    assert [done.status for done in resumed] == [0, 0], resumed[0].err + resumed[1].err
    assert "Loaded checkpoint" in resumed[0].text
    expected = parameters(tmp_path / "whole")
    found = parameters(tmp_path / "cut")
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.slow
def test_accumulated_gradients_are_those_of_the_whole_batch(data, tmp_path):
    """Every update reads all of the text, at once or in batches of eight."""
    found = []
    for size, every in ((1000, 1), (8, 100)):
        batches = ("--batch-size", size, "--update-freq", every, "--max-update", 4)
        batches += ("--required-batch-size-multiple", 1, "--disable-validation")
        done = train(data, tmp_path / str(size), *DIET, *batches)
        assert done.status == 0, done.err
        found.append(losses(done))
    assert len(found[0]) == 4
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["roberta_diet_rel", "bert_tupe_r", "roberta"])
def test_bf16_trains_saves_and_goes_on(data, tmp_path, arch):
    options = ("--arch", arch, "--batch-size", 8, "--bf16")
    for updates in (4, 8):
        done = train(data, tmp_path, *options, "--max-update", updates)
        assert done.status == 0, done.err
    assert "Loaded checkpoint" in done.text
    assert losses(done)
    assert all(value.isfinite().all() for value in parameters(tmp_path).values())


@pytest.fixture(scope="module")
def stock(data, tmp_path_factory):
    """A checkpoint of fairseq's own RoBERTa."""
    folder = tmp_path_factory.mktemp("stock")
    done = train(data, folder, "--arch", "roberta", "--batch-size", 8, "--max-update", 4)
    assert done.status == 0, done.err
    return folder / "checkpoint_last.pt"


@pytest.mark.slow
def test_an_encoder_starts_from_a_stock_roberta_goes_on_and_is_validated(data, stock, tmp_path):
    options = (*DIET, "--batch-size", 8, "--finetune-from-model", stock)
    for updates, said in ((2, "starts from another model"), (4, "Loaded checkpoint")):
        done = train(data, tmp_path, *options, "--max-update", updates)
        assert done.status == 0, done.err
        assert said in done.text
    assert "starts from another model" not in done.text  # now it has its own
    validated = run("validate", data, "--path", tmp_path / "checkpoint_last.pt", "--task",
                    "masked_lm", "--batch-size", 8, "--tokens-per-sample", 16, "--cpu")  # fmt: skip
    assert validated.status == 0, validated.err
    assert "starts from another model" not in validated.text


def test_a_stock_roberta_is_not_resumed_as_another_model(data, stock, tmp_path):
    done = train(data, tmp_path, *DIET, "--batch-size", 8, "--restore-file", stock)
    assert done.status == 1
    assert done.last.startswith(f"error: {stock} does not fit the model: ")


@pytest.mark.slow
def test_a_warm_started_run_is_not_resumed_with_other_positions(data, stock, tmp_path):
    options = ("--batch-size", 8, "--max-update", 2, "--finetune-from-model", stock)
    done = train(data, tmp_path, "--arch", "roberta_learned", *options)
    assert done.status == 0, done.err
    done = train(data, tmp_path, "--arch", "roberta_t5", *options)
    assert done.status == 1
    assert done.last.startswith(f"error: {tmp_path}/checkpoint_last.pt does not fit the model: ")


REFUSED = {
    "--arch bert_diet_rel --nsp": "--nsp goes with --criterion masked_lm_nsp, but the criterion is "
    "masked_lm: take that, or leave --nsp out",
    "--arch bert_diet_rel --task masked_lm_nsp": "--task masked_lm_nsp goes with --criterion "
    "masked_lm_nsp, but the criterion is masked_lm: take that, or leave --task masked_lm_nsp out",
    "--arch bert_diet_rel --amp": "--amp needs a GPU, and none is used: take --bf16, or "
    "leave it out",
    "--arch bert_diet_rel --fp16": "--fp16 makes one vector of all parameters, for which fairseq "
    "needs a GPU, and none is used: add --fp16-no-flatten-grads, or take --bf16",
    "--arch bert_diet_rel --tpu": "--tpu needs the package torch_xla, which is not installed: "
    "install it, or leave --tpu out",
    "--arch bert_diet_rel --encoder-attention-heads 3": "a width of 8 can't be split among 3 "
    "attention heads: change --encoder-embed-dim or --encoder-attention-heads, or the decoder's",
    "--arch bert_diet_rel --max-positions 0": "--max-positions must be at least 1, but is 0",
    "--arch bert_diet_rel --mha-heads-to-keep 1": "--mha-heads-to-keep 1 can't be combined with "
    "position schemes: leave it out, or use fairseq's own model",
    "--arch bert_learned --max-positions 8 --task masked_lm_nsp --criterion masked_lm_nsp --nsp": (
        "there are no batches: the data is empty, or all of it is longer than the "
        "model takes (see the warnings above); give a smaller --tokens-per-sample, or train with "
        "larger --max-positions, or --max-source-positions and --max-target-positions"
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("line", REFUSED)
def test_a_pretraining_that_can_not_work_is_refused(data, tmp_path, line):
    done = train(data, tmp_path, "--batch-size", 8, "--max-update", 2, *line.split())
    assert done.status == 1
    assert done.last == f"error: {REFUSED[line]}"


@pytest.mark.slow
def test_what_next_sentences_trained_is_validated_as_a_language_model(data, tmp_path):
    pairs = ("--task", "masked_lm_nsp", "--criterion", "masked_lm_nsp", "--nsp")
    options = ("--arch", "bert_diet_rel", "--batch-size", 8, "--max-update", 2)
    done = train(data, tmp_path, *options, *pairs)
    assert done.status == 0, done.err
    validated = run("validate", data, "--path", tmp_path / "checkpoint_last.pt", "--task",
                    "masked_lm", "--batch-size", 8, "--tokens-per-sample", 16, "--cpu")  # fmt: skip
    assert validated.status == 0, validated.err


LAUNCHES = {
    "world size": ("--distributed-world-size", 2),
    "address": (
        *("--distributed-world-size", 2),
        *("--distributed-init-method", "tcp://127.0.0.1:9", "--distributed-rank", 0),
    ),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs, and fairseq uses them")
@pytest.mark.parametrize("launch", LAUNCHES)
def test_processes_that_fairseq_would_not_start_are_refused(data, tmp_path, launch):
    done = train(data, tmp_path / "run", *DIET, "--batch-size", 8, *LAUNCHES[launch])
    assert done.status == 1
    assert done.last == (
        "error: 2 processes are requested, but fairseq starts one per GPU, and there is none: "
        f"{ON_CPUS}; or train in one process"
    )
    assert not (tmp_path / "run").exists()


def as_torchrun_does():
    import os

    os.environ |= {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs, and fairseq uses them")
def test_processes_of_torchrun_that_would_each_train_alone_are_refused(data, tmp_path):
    done = train(data, tmp_path / "run", *DIET, "--batch-size", 8, first=as_torchrun_does)
    assert done.status == 1
    assert done.last.startswith("error: 2 processes are requested, but fairseq starts one per")


UNFIT = {
    "--distributed-backend nccl": ("nccl", "legacy_ddp", "gloo"),
    "--ddp-backend slowmo": ("gloo", "slowmo", "legacy_ddp or pytorch_ddp or fully_sharded"),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs, and fairseq uses them")
@pytest.mark.parametrize("flag", UNFIT)
def test_backends_that_need_gpus_are_refused_without(data, tmp_path, flag):
    backend, parallel, instead = UNFIT[flag]
    done = train(data, tmp_path / "run", *DIET, "--batch-size", 8, "--distributed-world-size", 2,
                 "--distributed-rank", 0, "--device-id", 0, "--distributed-no-spawn",
                 "--distributed-init-method", "tcp://127.0.0.1:9",
                 "--distributed-backend", backend, "--ddp-backend", parallel)  # fmt: skip
    assert done.status == 1
    assert done.last == (
        f"error: {flag} needs GPUs, and there is none: take {flag.split()[0]} {instead}"
    )


def test_a_user_s_mistake_in_a_process_that_torch_started_is_still_told_in_words():
    text = "-- Process 0 terminated with the following error:\nTraceback ...\n"
    raised = torch.multiprocessing.ProcessRaisedException(
        text + "diet_fairseq.errors.UserError: --this is wrong: do that\n", 0, 1
    )
    assert mistake_behind(raised) == "--this is wrong: do that"
    killed = torch.multiprocessing.ProcessExitedException(
        "process 1 terminated with signal SIGKILL", 1, 2, -9, "SIGKILL"
    )
    assert mistake_behind(killed) == (
        "process 1 of this run was ended by SIGKILL (SIGKILL: often for lack of memory): run the "
        "same command to resume from the last checkpoint"
    )


def spoil_the_third_update():
    """Have the loss be NaN from the third update on."""
    from fairseq.criterions.masked_lm import MaskedLmLoss

    forward, calls = MaskedLmLoss.forward, iter(range(1, 1000))

    def spoilt(self, *args, **kwargs):
        loss, size, log = forward(self, *args, **kwargs)
        return loss * (float("nan") if next(calls) > 2 else 1), size, log

    MaskedLmLoss.forward = spoilt


def test_nan_in_the_loss_says_in_which_update(data, tmp_path):
    done = train(data, tmp_path, *DIET, "--batch-size", 8, "--max-update", 5,
                 first=spoil_the_third_update)  # fmt: skip
    assert done.status == 1
    assert done.last == (
        "error: the gradients of update 3 are not finite (NaN or infinite): lower --lr, warm up "
        f"longer, or set --clip-norm; to go on from the last checkpoint in {tmp_path}, run this "
        "again"
    )


@pytest.mark.parametrize(
    ("has", "given", "said"),
    [
        ({"avx512_bf16": True}, {}, True),
        ({"amx_bf16": True, "avx512_bf16": True}, {}, True),
        ({"avx512_bf16": False}, {}, False),
        ({"avx512_bf16": True}, {"bf16": True}, False),
        ({"avx512_bf16": True}, {"fp16": True}, False),
    ],
)
def test_a_cpu_that_multiplies_in_bfloat16_unused_is_told(has, given, said, monkeypatch, caplog):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    common = Namespace(**{"cpu": True, "bf16": False, "fp16": False, **given})
    with caplog.at_level("INFO", "diet_fairseq"):
        runs.say_what_is_unused(Namespace(common=common))
    assert ["--bf16 may be faster" in line for line in caplog.messages] == [True] * said


def test_fp16_that_overflows_for_ever_ends_in_words(data, tmp_path):
    fp16 = ("--fp16", "--fp16-no-flatten-grads")
    done = train(data, tmp_path, *DIET, "--batch-size", 8, *fp16, "--max-update", 500,
                 first=spoil_the_third_update)  # fmt: skip
    assert done.status == 1
    assert "overflows float16 even at the smallest --min-loss-scale" in done.last


def test_samples_longer_than_the_model_s_positions_are_refused(data, tmp_path):
    options = ("--arch", "roberta_learned", "--batch-size", 8, "--max-update", 2)
    done = train(data, tmp_path, *options, "--max-positions", 8)
    assert done.status == 1
    assert re.sub(r"sample \d+", "sample N", done.last) == (
        "error: sample N has 16 tokens, but the model takes at most 8: give a smaller "
        "--tokens-per-sample, leave it out by --skip-invalid-size-inputs-valid-test, or train with "
        "a larger --max-positions"
    )


@pytest.mark.slow
def test_a_run_that_resumes_masks_and_orders_as_one_that_was_not_cut(data, tmp_path):
    options = (*DIET, "--batch-size", 8, "--max-epoch", 3, "--save-interval-updates", 4)
    assert train(data, tmp_path / "whole", *options).status == 0
    kill = partial(kill_on_call, "fairseq.trainer:Trainer.train_step", 7)
    killed = train(data, tmp_path / "cut", *options, first=kill)
    assert killed.status == -9
    assert train(data, tmp_path / "cut", *options).status == 0
    expected, found = parameters(tmp_path / "whole"), parameters(tmp_path / "cut")
    assert all(torch.equal(found[name], value) for name, value in expected.items())
