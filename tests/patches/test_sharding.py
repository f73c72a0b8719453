"""``--ddp-backend fully_sharded`` trains as one process does, and saves what one process reads."""

import pytest
import torch
from omegaconf import OmegaConf

from diet_fairseq.errors import UserError
from diet_fairseq.patches import sharding
from tests.support.commands import TINY, log_lines, run, saved_tensors, together

pytestmark = pytest.mark.slow

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
    "checkpointing, and the fused loss": (
        *("--arch", "transformer_tupe_r_tiny", "--checkpoint-activations"),
        *("--criterion", "fused_label_smoothed_cross_entropy", "--label-smoothing", 0.1),
    ),
    "fairseq's own": ("--arch", "transformer", "--share-all-embeddings", "--optimizer", "adam"),
    "segments, not resharded": (
        *("--arch", "bert_diet_abs", *ENCODER),
        "--no-reshard-after-forward",
    ),
    "compressed keys, and LAMB": (
        *("--arch", "roberta_diet_abs_lin", *ENCODER),
        *("--optimizer", "lamb_torch"),
    ),
}


@pytest.fixture(scope="module")
def data(data, documents):
    return {"pairs": data, "texts": documents}


def words(data, options):
    """The data and the options of a run."""
    optimizer = () if "lamb_torch" in options else ADAM
    if "masked_lm" in options:
        return (data["texts"], *RUN, *optimizer, *options)
    return (data["pairs"], *TINY, *RUN, *optimizer, *options)


def copied(data, folder, *options):
    """Losses on two processes that each have the whole model, by fairseq itself."""
    processes = together(*words(data, options), "--save-dir", folder)
    return max(map(losses, processes), key=len)  # the first process prints


def sharded(data, folder, *options):
    return copied(data, folder, *SHARDED, *options)


def alone(data, folder, *options):
    return losses(run("train", *words(data, options), "--update-freq", 2, "--save-dir", folder))


def losses(done):
    """Losses and norms of gradients as printed, of updates and of validations."""
    names = ("num_updates", "loss", "gnorm", "valid_num_updates", "valid_loss")
    return [tuple(line.get(name) for name in names) for line in log_lines(done)]


def assert_close(folder, expected):
    """The parameters, and what the optimizer knows of each, are nearly the same."""
    ours, theirs = saved_tensors(folder), saved_tensors(expected)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        is_moment = name.endswith(("exp_avg", "exp_avg_sq"))
        if is_moment or not name[0].isdigit():
            rtol, atol = (1e-3, 1e-6) if is_moment else (1e-4, 1e-5)
            torch.testing.assert_close(ours[name], value, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_train_as_one_with_twice_the_batches(data, tmp_path, name):
    lines = sharded(data, tmp_path / "two", *RUNS[name])
    assert lines == alone(data, tmp_path / "alone", *RUNS[name])
    assert len(lines) >= 6
    assert_close(tmp_path / "two", tmp_path / "alone")


def test_the_training_program_shards_under_any_name(data, tmp_path):
    program = "tests.support.commands:train_as_main"
    done = run(program, data["pairs"], *TINY, *SHARDED, "--max-update", 1, "--save-dir", tmp_path)
    assert done.status == 0, done.err
    assert (tmp_path / "checkpoint_last.pt").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [((sharded, copied), (alone, alone)), ((alone, alone), (sharded, copied))],
    ids=["two, then one", "one, then two"],
)
def test_a_run_resumes_on_another_number_of_processes(data, tmp_path, before, after):
    options = RUNS["a score that all layers share"]
    lines = []
    for folder, begin, resume in zip(("sharded", "copied"), before, after, strict=True):
        begin(data, tmp_path / folder, *options, "--max-update", 2)
        lines.append(resume(data, tmp_path / folder, *options))
    assert lines[0] == lines[1]
    assert_close(tmp_path / "sharded", tmp_path / "copied")


def test_bf16_computes_in_bfloat16_and_keeps_float32_parameters(data, tmp_path):
    options = RUNS["a score that all layers share"]
    runs = (
        sharded(data, tmp_path / "two", *options, "--bf16"),
        alone(data, tmp_path / "f", *options),
    )
    ours, theirs = ([float(line[1]) for line in lines if line[1]] for lines in runs)
    assert ours == pytest.approx(theirs, rel=0.01)
    assert ours != theirs
    values = saved_tensors(tmp_path / "two").values()
    assert torch.bfloat16 not in {value.dtype for value in values if torch.is_tensor(value)}


def test_one_process_computes_in_bfloat16_as_without_sharding(data, tmp_path):
    options = (*words(data, RUNS["a score that all layers share"]), "--bf16", "--no-save")
    ours, theirs = (
        losses(run("train", *options, *backend, "--save-dir", tmp_path))
        for backend in (SHARDED, ())
    )
    assert ours == theirs


@pytest.mark.parametrize(
    ("section", "option", "value"),
    [
        ("common", "fp16", True),
        ("common", "amp", True),
        ("distributed_training", "cpu_offload", True),
        ("distributed_training", "zero_sharding", "os"),
        ("ema", "store_ema", True),
        ("task", "eval_bleu", True),
        ("checkpoint", "no_last_checkpoints", True),
        ("model", "encoder_layerdrop", 0.1),
    ],
)
def test_options_that_do_not_go_with_sharding_are_refused(section, option, value):
    cfg = {
        "common": dict.fromkeys(
            ("fp16", "memory_efficient_fp16", "memory_efficient_bf16", "amp"), False
        ),
        "distributed_training": {
            "ddp_backend": "fully_sharded", "cpu_offload": False, "use_sharded_state": False,
            "zero_sharding": "none",
        },
        "optimization": {"use_bmuf": False}, "ema": {}, "task": {}, "model": {},
        "checkpoint": {},
    }  # fmt: skip
    sharding.check_options(OmegaConf.create(cfg))
    cfg[section][option] = value
    flag = "--" + option.replace("_", "-")
    with pytest.raises(
        UserError, match=f"^{flag} can't be combined with --ddp-backend fully_sharded: "
    ):
        sharding.check_options(OmegaConf.create(cfg))
    cfg["distributed_training"]["ddp_backend"] = "legacy_ddp"
    sharding.check_options(OmegaConf.create(cfg))
