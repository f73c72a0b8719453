"""An optimizer's state is taken from a checkpoint only where it fits the parameters."""

from functools import partial

import pytest
import torch

from diet_fairseq import checkpoints
from diet_fairseq.errors import UserError
from tests.support import commands
from tests.support.commands import TINY, run
from tests.support.optimizers import (
    EACH,
    fused_adamw,
    lamb_torch,
    parameters,
    through_a_file,
    trajectory,
)


@pytest.fixture
def state(make):
    """An optimizer's state after three updates, as a checkpoint has it."""
    trajectory(optimizer := make(params := parameters()), params, steps=range(3))
    return through_a_file(optimizer.state_dict())


def refused(make, state):
    with pytest.raises(UserError) as error:
        make(parameters()).load_state_dict(state)
    text = str(error.value)
    assert "\n" not in text
    cure = (
        "); give an undamaged checkpoint and the options of its run, or start with a "
        "new optimizer state (--reset-optimizer)"
    )
    assert text.endswith(cure)
    start = " can't resume from the checkpoint, whose optimizer state does not fit ("
    return text.removesuffix(cure).partition(start)[2]


@EACH
def test_moments_of_another_shape_are_refused(make, state):
    """Otherwise PyTorch's kernel would read and write beyond their end."""
    for wrong, shape in [
        (torch.zeros(1), "1"),
        (torch.zeros(()), "a number"),
        (torch.zeros(50 * 128), "6400"),
        (torch.zeros(8, 16), "8 x 16"),
        (torch.zeros(1).expand(8, 16), "8 x 16"),
    ]:
        for name in ("exp_avg", "exp_avg_sq"):
            right = state["state"][0][name]
            state["state"][0][name] = wrong
            assert refused(make, state) == f"a moment is {shape}, but its parameter 16 x 8"
            state["state"][0][name] = right


@EACH
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: torch.zeros(16, 8, device="meta"),
        lambda: torch.zeros(16, 8).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.zeros(8)] * 16),
        lambda: torch.quantize_per_tensor(torch.zeros(16, 8), 1.0, 0, torch.qint8),
        lambda: torch.zeros(16, 8, dtype=torch.int64),
        lambda: "moment",
    ],
)
def test_moments_that_are_no_plain_numbers_are_refused(make, state, wrong):
    state["state"][0]["exp_avg_sq"] = wrong()
    assert refused(make, state)


def turned(moment):
    """The same numbers, lying otherwise in memory."""
    return moment.transpose(0, -1).contiguous().transpose(0, -1)


def spread(moment):
    """One number in memory, which every place of the tensor is."""
    return moment.flatten()[0].expand(moment.shape)


@EACH
@pytest.mark.parametrize("lying", [turned, spread, torch.Tensor.double, torch.nn.Parameter])
def test_moments_count_by_their_places_not_by_how_they_lie_in_memory(make, state, lying):
    ends = []
    for change in (lying, lambda moment: lying(moment).detach().float().contiguous().clone()):
        loaded = through_a_file(state)
        for moments in loaded["state"].values():
            moments |= {name: change(moments[name]) for name in ("exp_avg", "exp_avg_sq")}
        optimizer = make(params := parameters())
        optimizer.load_state_dict(loaded)
        ends.append(trajectory(optimizer, params, steps=range(3, 6)))
    assert torch.equal(*ends)


@EACH
def test_loaded_moments_are_copies(make, state):
    for moments in state["state"].values():
        moments["exp_avg_sq"] = moments["exp_avg"] = moments["exp_avg"].abs()
    before = state["state"][0]["exp_avg"].clone()
    optimizer = make(params := parameters())
    optimizer.load_state_dict(state)
    trajectory(optimizer, params, steps=range(2))
    assert torch.equal(state["state"][0]["exp_avg"], before)
    (first, *_) = optimizer.optimizer.state.values()
    assert not torch.equal(first["exp_avg"], first["exp_avg_sq"])


@EACH
@pytest.mark.parametrize("key", ["lr", "eps", "weight_decay", "step"])
def test_values_that_are_no_numbers_are_refused(make, state, key):
    of_parameter = key == "step" and make is fused_adamw
    values = (state["state"] if of_parameter else state["param_groups"])[0]
    for wrong in (None, "1", -1, float("nan"), float("inf"), 10**400, torch.ones(2), [1]):
        values[key] = wrong
        assert refused(make, state)


@EACH
def test_betas_that_are_no_numbers_are_refused(make, state):
    for wrong, text in [
        ((0.9, 1.0), "a number is 1.0, not from 0 to below 1"),
        (("a", 0.9), "not supported between instances of"),
        ((0.9,), "not enough values"),
        (None, "not iterable"),
    ]:
        state["param_groups"][0]["betas"] = wrong
        assert text in refused(make, state)


@EACH
@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["param_groups"][0]["params"].append(7),
        lambda state: state["param_groups"].pop(),
        lambda state: state["state"].update({7: state["state"][0]}),
        lambda state: state.pop("state"),
        lambda state: state.update(state=[1]),
        lambda state: state.update(state={0: 1}),
        lambda state: state.update(param_groups={}),
        lambda state: state.update(param_groups=[1]),
        lambda state: state["param_groups"][0].pop("params"),
        lambda state: state["param_groups"][0]["params"].__setitem__(0, []),
    ],
)
def test_anything_but_the_state_of_these_parameters_is_refused(make, state, change):
    change(state)
    assert refused(make, state)


def without_parameters(optimizer):
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


@EACH
def test_a_checkpoint_switches_no_option_on(make, state):
    for group in state["param_groups"]:
        group |= {"maximize": True, "amsgrad": True, "capturable": True, "rectify": True,
                  "adanorm": True, "fused": False, "new": 1}  # fmt: skip
    optimizer = make(parameters())
    before = [set(group.items()) for group in without_parameters(optimizer)]
    optimizer.load_state_dict(state)
    after = [set(group.items()) for group in without_parameters(optimizer)]
    assert [new - old for old, new in zip(before, after, strict=True)] == [
        {("lr", group["lr"]), *([("step", 3)] if make is lamb_torch else [])}
        for group in state["param_groups"]
    ]


@pytest.mark.slow
def test_fairseq_train_says_what_does_not_fit(tmp_path):
    train = partial(run, "train", commands.corpus(tmp_path), *TINY, "--optimizer", "fused_adamw",
                    "--disable-validation", "--save-dir", tmp_path)  # fmt: skip
    assert train("--max-update", 1).status == 0
    last = tmp_path / "checkpoint_last.pt"
    with open(last, "rb") as file:
        state = checkpoints.read(file, "cpu")
    state["last_optimizer_state"]["state"][0]["exp_avg"] = torch.zeros(1)
    torch.save(state, last)
    done = train("--max-update", 2)
    assert done.status == 1
    assert done.last.startswith(
        "error: --optimizer fused_adamw can't resume from the checkpoint, whose optimizer state "
        "does not fit (a moment is 1, but its parameter "
    )
