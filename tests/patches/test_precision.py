"""``--bf16`` in commands that translate and score; half precision resumes exactly."""

from argparse import Namespace

import pytest
import torch
from torch import nn

from diet_fairseq.patches import precision
from tests.optim.test_optimizers import half_trajectory, wrapped
from tests.support.commands import TINY, run
from tests.support.optimizers import fused_adamw, through_a_file


@pytest.mark.parametrize(
    ("bf16", "path", "expected"),
    [
        (True, "x.pt", torch.bfloat16),
        (False, "x.pt", torch.float32),
        (True, None, torch.float32),  # the option of a checkpoint, which was trained in it
    ],
)
def test_a_command_that_is_given_bf16_computes_in_it(bf16, path, expected):
    model = nn.Linear(2, 2)
    cfg = Namespace(common=Namespace(bf16=bf16), common_eval=Namespace(path=path))
    precision.use_bf16(lambda model, cfg: None, model, cfg)
    assert {parameter.dtype for parameter in model.parameters()} == {expected}


def test_a_resumed_optimizer_has_the_parameters_before_rounding(monkeypatch):
    half = {"bf16": True, "dtype": torch.bfloat16}
    first, parameters = wrapped(fused_adamw, monkeypatch, **half)
    half_trajectory(first, parameters, range(5))
    second, _ = wrapped(fused_adamw, monkeypatch, **half)
    for new, old in zip(second.fp32_params, first.fp32_params, strict=True):
        new.data.copy_(old.data.bfloat16())  # as the model in the checkpoint has them
    second.load_state_dict(through_a_file(first.state_dict()), {})
    for new, old in zip(second.fp32_params, first.fp32_params, strict=True):
        assert torch.equal(new, old)
        assert not torch.equal(old, old.bfloat16().float())


@pytest.mark.slow
def test_a_stock_model_trains_and_translates_in_bf16(data, tmp_path):
    done = run("train", data, *TINY, "--bf16", "--max-update", 2, "--save-dir", tmp_path)
    assert done.status == 0, done.err
    model = ("--path", tmp_path / "checkpoint_last.pt", "--cpu", "--max-len-b", 5)
    outputs = []
    for options in ((), ("--bf16",)):
        done = run("generate", data, "-s", "de", "-t", "en", *model, *options)
        assert done.status == 0, done.err
        outputs.append([line for line in done.out.splitlines() if line.startswith("H-")])
    assert outputs[0] != outputs[1]
