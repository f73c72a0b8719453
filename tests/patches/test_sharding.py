"""``--ddp-backend fully_sharded`` trains as one process does, and saves what one process reads."""

import json
import re
import subprocess
import sys

import pytest
import torch
from omegaconf import OmegaConf

from diet_fairseq import checkpoints
from diet_fairseq.errors import UserError
from diet_fairseq.patches import sharding
from tests.support import commands
from tests.support.commands import TINY, run, together

SHARDED = ("--ddp-backend", "fully_sharded")
RUN = (
    *("--max-update", 4, "--log-format", "json", "--log-interval", 1, "--cpu", "--num-workers", 0),
    *("--dropout", 0, "--clip-norm", 0.5, "--required-batch-size-multiple", 1, "--batch-size", 4),
    *("--lr", 0.01, "--save-interval-updates", 2, "--seed", 1),
)
# with a smaller eps gradients of some 1e-8 count as much as others
ADAM = ("--optimizer", "fused_adamw", "--adam-eps", 1e-3)
ENCODER = (
    *("--encoder-layers", 2, "--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8),
    *("--encoder-attention-heads", 2, "--tokens-per-sample", 16, "--task", "masked_lm"),
    *("--criterion", "masked_lm", "--attention-dropout", 0),
)
TRANSLATION = "transformer_diet_rel_tiny"
#: models and options, by what is particular about them
RUNS = {
    "a score that all layers share": ("--arch", TRANSLATION),
    "checkpointing": ("--arch", "transformer_tupe_r_tiny", "--checkpoint-activations"),
    "fairseq's own": ("--arch", "transformer", "--share-all-embeddings", "--optimizer", "adam"),
    "kept together": ("--arch", "transformer_diet_abs_tiny", "--no-reshard-after-forward"),
    "segments": ("--arch", "bert_diet_abs", *ENCODER),
    "fairseq's own encoder": ("--arch", "roberta", *ENCODER),
    "compressed keys": ("--arch", "roberta_diet_abs_lin", *ENCODER),
    "LAMB": ("--arch", "roberta_diet_rel", *ENCODER, "--optimizer", "lamb_torch"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "pairs").mkdir()
    (folder / "texts").mkdir()
    return {
        "pairs": commands.corpus(folder / "pairs"),
        "texts": commands.documents(folder / "texts"),
    }


def words(data, options):
    """The data and the options of a run."""
    optimizer = () if "lamb_torch" in options else ADAM
    if "masked_lm" in options:
        return (data["texts"], *RUN, *optimizer, *options)
    return (data["pairs"], *TINY, *RUN, *optimizer, *options)


def sharded(data, folder, *options):
    both = together(*words(data, options), *SHARDED, "--save-dir", folder)
    assert [done.status for done in both] == [0, 0], both[0].err + both[1].err
    return next(found for found in map(losses, both) if found)  # the first process prints


def copied(data, folder, *options):
    """As sharded, but each process has the whole model, by fairseq itself."""
    both = together(*words(data, options), "--save-dir", folder)
    assert [done.status for done in both] == [0, 0], both[0].err + both[1].err
    return next(found for found in map(losses, both) if found)


def alone(data, folder, *options):
    done = run("train", *words(data, options), "--update-freq", 2, "--save-dir", folder)
    assert done.status == 0, done.err
    return losses(done)


def losses(done):
    """Losses and norms of gradients as printed, of updates and of validations."""
    lines = [json.loads(text) for text in re.findall(r"\{\"epoch\".*\}", done.text)]
    names = ("num_updates", "loss", "gnorm", "valid_num_updates", "valid_loss")
    return [tuple(line.get(name) for name in names) for line in lines]


def state(path):
    with open(path, "rb") as file:
        return checkpoints.read(file, "cpu")


def assert_same(one, other):
    """Parameters, and what the optimizer knows of each."""
    found, expected = map(state, (one, other))
    assert found["model"].keys() == expected["model"].keys()
    for name, tensor in expected["model"].items():
        torch.testing.assert_close(found["model"][name], tensor, rtol=1e-4, atol=1e-5)
    moments = [part["last_optimizer_state"]["state"] for part in (found, expected)]
    assert moments[0].keys() == moments[1].keys()
    for number, values in moments[1].items():
        for name in ("exp_avg", "exp_avg_sq"):
            found_one = moments[0][number][name]
            torch.testing.assert_close(found_one, values[name], rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_two_processes_train_as_one_that_accumulates_two_batches(data, tmp_path, name):
    found = sharded(data, tmp_path / "two", *RUNS[name])
    assert found == alone(data, tmp_path / "one", *RUNS[name])
    assert len(found) >= 6
    assert_same(tmp_path / "two" / "checkpoint_last.pt", tmp_path / "one" / "checkpoint_last.pt")


def test_the_training_program_shards_under_whatever_name_it_runs(data, tmp_path):
    # not `run`, which has imported the program as a module
    command = [sys.executable, "-m", "fairseq_cli.train", data["pairs"], *TINY, *SHARDED,
               "--max-update", 1, "--save-dir", tmp_path, *commands.PLUGIN]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "checkpoint_last.pt").exists()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["two", "one"])
def test_a_run_goes_on_with_another_number_of_processes(data, tmp_path, first):
    options = RUNS["a score that all layers share"]
    ways = {"two": (sharded, copied), "one": (alone, alone)}
    second = (alone, alone) if first == "two" else (sharded, copied)
    found = []
    for folder, begin, go_on in zip(("sharded", "copied"), ways[first], second, strict=True):
        begin(data, tmp_path / folder, *options, "--max-update", 2)
        found.append(go_on(data, tmp_path / folder, *options))
    assert found[0] == found[1]
    assert_same(*(tmp_path / folder / "checkpoint_last.pt" for folder in ("sharded", "copied")))


@pytest.mark.slow
def test_bf16_computes_in_it_and_keeps_parameters_in_float32(data, tmp_path):
    options = RUNS["a score that all layers share"]
    found = sharded(data, tmp_path / "two", *options, "--bf16")
    expected = alone(data, tmp_path / "one", *options)
    printed = [[float(line[1]) for line in lines if line[1]] for lines in (found, expected)]
    assert printed[0] == pytest.approx(printed[1], rel=0.01)
    assert printed[0] != printed[1]
    types = {one.dtype for one in state(tmp_path / "two" / "checkpoint_last.pt")["model"].values()}
    assert torch.bfloat16 not in types


@pytest.mark.parametrize(
    ("where", "option", "value"),
    [
        ("common", "fp16", True),
        ("common", "amp", True),
        ("distributed_training", "cpu_offload", True),
        ("distributed_training", "zero_sharding", "os"),
        ("ema", "store_ema", True),
        ("task", "eval_bleu", True),
        ("model", "encoder_layerdrop", 0.1),
    ],
)
def test_what_does_not_go_with_it_is_refused(where, option, value):
    cfg = {
        "common": dict.fromkeys(
            ("fp16", "memory_efficient_fp16", "memory_efficient_bf16", "amp"), False
        ),
        "distributed_training": {
            "ddp_backend": "fully_sharded", "cpu_offload": False, "use_sharded_state": False,
            "zero_sharding": "none",
        },
        "optimization": {"use_bmuf": False}, "ema": {}, "task": {}, "model": {},
    }  # fmt: skip
    sharding.check(OmegaConf.create(cfg))
    cfg[where][option] = value
    flag = "--" + option.replace("_", "-")
    with pytest.raises(UserError, match=f"^{flag} does not go with --ddp-backend fully_sharded: "):
        sharding.check(OmegaConf.create(cfg))
    cfg["distributed_training"]["ddp_backend"] = "legacy_ddp"
    sharding.check(OmegaConf.create(cfg))
