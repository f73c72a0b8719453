"""Optimizers and the learning-rate schedule: their steps are the known ones, resumed or not."""

import io
import json
import re
import sys
from functools import partial

import pytest
import torch
from fairseq.optim import FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.optim.adam import Adam, FairseqAdam, FairseqAdamConfig
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import (
    PolynomialDecayLRSchedule,
    PolynomialDecayLRScheduleConfig,
)
from omegaconf import OmegaConf

from diet_fairseq.errors import UserError
from diet_fairseq.optim.fused_adamw import AdamW, FusedAdamW, FusedAdamWConfig
from diet_fairseq.optim.lamb_torch import LambTorch, LambTorchConfig
from diet_fairseq.optim.linear_ratio import LinearRatio, LinearRatioConfig
from diet_fairseq.patches import loading
from diet_fairseq.patches.explaining import mistake_behind
from tests.support import commands
from tests.support.commands import TINY, kill_on_call, run

SHAPES = [(16, 8), (8,), (4, 3, 5)]
STEPS = 60
HYPER = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01}
#: what a number may differ by after sixty updates that are computed in another order
ROUNDING = 1e-6


def parameters(size=0.1, device="cpu"):
    draw = torch.Generator().manual_seed(1)
    values = [size * torch.randn(shape, generator=draw) for shape in SHAPES]
    return [torch.nn.Parameter(value.to(device)) for value in values]


def always(step, number):
    return True


def sometimes(step, number):
    """Every parameter but the first is left out at times, as LayerDrop does it to a layer's."""
    return (step + number) % (number + 2) > 0 or number == 0


def give_gradients(params, step, there=always):
    """Gradients as small as those of a large model: 1e-5, with eps 1e-6 beside them."""
    draw = torch.Generator().manual_seed(step)
    for number, p in enumerate(params):
        gradient = 1e-5 * torch.randn(p.shape, generator=draw)
        p.grad = gradient.to(p) if there(step, number) else None


def trajectory(optimizer, params, there=always, steps=range(STEPS)):
    """Where the parameters are after these updates, (numbers,)."""
    for step in steps:
        give_gradients(params, step, there)
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * (1 - step / STEPS)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in params])


def moved(make, there=always, **options):
    params = parameters(**options)
    return trajectory(make(params, **HYPER), params, there)


def difference(one, other):
    return float((one - other).abs().max())


def build(kind, params, **options):
    """The optimizer as fairseq builds it."""
    config = {FusedAdamW: FusedAdamWConfig, LambTorch: LambTorchConfig}[kind]
    return kind(config(**({"lr": [0.01]} | options)), params)


def fused_adamw(params):
    return build(FusedAdamW, params, adam_betas="(0.9, 0.98)", adam_eps=1e-6, weight_decay=0.01)


def lamb_torch(params):
    return build(LambTorch, params, lamb_betas="(0.9, 0.98)", weight_decay=0.01)


EACH = pytest.mark.parametrize("make", [fused_adamw, lamb_torch])
GRADIENTS = pytest.mark.parametrize("there", [always, sometimes])


# fused_adamw


class OneCount(AdamW):
    """A mutant: all parameters have had as many updates as there were."""

    steps = 0

    def _updates_of(self, parameter):
        return self.steps

    def step(self, closure=None):
        super().step(closure)
        self.steps += 1


@GRADIENTS
def test_fused_adamw_takes_the_steps_of_fairseqs_adam(there):
    assert difference(moved(AdamW, there), moved(Adam, there)) <= ROUNDING


def test_torchs_adamw_alone_takes_other_steps():
    """The control: it has eps elsewhere."""
    alone = partial(torch.optim.AdamW, fused=True)
    assert difference(moved(alone), moved(Adam)) > 1000 * ROUNDING


def test_each_parameter_has_its_own_number_of_updates():
    """The control to `sometimes`."""
    assert difference(moved(OneCount), moved(Adam)) <= ROUNDING
    assert difference(moved(OneCount, sometimes), moved(Adam, sometimes)) > 10 * ROUNDING


def test_gradients_may_lie_otherwise_in_memory_than_parameters():
    """PyTorch's kernel alone takes one entry's gradient for another's."""
    ends = []
    for make in (AdamW, Adam):
        (p,) = params = parameters()[:1]
        p.grad = (
            1e-5 * torch.randn(*SHAPES[0][::-1], generator=torch.Generator().manual_seed(1)).t()
        )
        make(params, **HYPER).step()
        ends.append(p.detach())
    assert difference(*ends) <= ROUNDING


def test_the_registered_optimizer_is_that_one():
    params = parameters()
    assert difference(trajectory(fused_adamw(params), params), moved(Adam)) <= ROUNDING


def test_eps_stays_as_given():
    params = parameters()
    optimizer = fused_adamw(params)
    trajectory(optimizer, params, steps=range(3))
    assert optimizer.state_dict()["param_groups"][0]["eps"] == 1e-6
    optimizer.load_state_dict(through_a_file(optimizer.state_dict()), {"eps": 1e-3, "lr": 0.5})
    assert (optimizer.param_groups[0]["eps"], optimizer.get_lr()) == (1e-3, 0.5)


@GRADIENTS
def test_fused_adamw_goes_on_from_fairseqs_adam(there):
    """Whose count of updates is an int in its checkpoints."""
    params = parameters()
    adam = Adam(params, **HYPER)
    trajectory(adam, params, there, range(25))
    optimizer = fused_adamw(params)
    optimizer.load_state_dict(through_a_file(adam.state_dict()))
    end = trajectory(optimizer, params, there, range(25, STEPS))
    assert difference(end, moved(Adam, there)) <= ROUNDING
    counts = [state["step"] for state in optimizer.optimizer.state.values()]
    assert {count.dtype for count in counts} == {torch.float32}
    assert optimizer.param_groups[0]["fused"]


# lamb_torch


def lamb_by_loops(there):
    """ALBERT's LAMB, tensor by tensor."""
    params, moments = [p.data for p in parameters(size=1)], {}
    b1, b2, eps, decay = *HYPER["betas"], HYPER["eps"], HYPER["weight_decay"]
    for step in range(STEPS):
        give_gradients(given := [torch.nn.Parameter(p) for p in params], step, there)
        for number, x in enumerate(params):
            gradient = given[number].grad
            if gradient is None:
                continue
            m, v = moments.get(number, (0, 0))
            m, v = b1 * m + (1 - b1) * gradient, b2 * v + (1 - b2) * gradient**2
            moments[number] = m, v
            u = m / (v.sqrt() + eps)
            ratio = 1
            if x.dim() > 1:
                u = u + decay * x
                ratio = x.norm() / u.norm()
            x -= 0.01 * (1 - step / STEPS) * ratio * u
    return torch.cat([p.flatten() for p in params])


@GRADIENTS
def test_lamb_is_the_published_one(there):
    params = parameters(size=1)
    assert params[0].norm() > 10  # more than the package would let it count as
    end = trajectory(lamb_torch(params), params, there)
    assert difference(end, lamb_by_loops(there)) <= 10 * ROUNDING


def test_the_packages_own_lamb_is_another():
    """The control: its defaults bound norms, divide lr, and decay outside the ratio."""
    from pytorch_optimizer import Lamb

    assert difference(moved(Lamb, size=1), lamb_by_loops(always)) > 1000 * ROUNDING


def test_without_the_package_lamb_says_which_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(UserError) as error:
        lamb_torch(parameters())
    assert str(error.value) == (
        "--optimizer lamb_torch needs the package pytorch-optimizer, which is not here: pip "
        "install 'pytorch-optimizer>=4.1,<5', or take --optimizer fused_adamw"
    )


# both


def through_a_file(state):
    """What a checkpoint makes of a state; nothing in it needs to be trusted."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@EACH
@GRADIENTS
def test_an_interrupted_optimizer_ends_where_an_uninterrupted_one_does(make, there):
    whole = trajectory(make(params := parameters()), params, there)
    first = make(params := parameters())
    trajectory(first, params, there, range(25))
    second = make(params := [torch.nn.Parameter(p.detach().clone()) for p in params])
    second.load_state_dict(through_a_file(first.state_dict()), {})
    assert torch.equal(trajectory(second, params, there, range(25, STEPS)), whole)


@EACH
def test_the_state_of_another_optimizer_is_refused(make):
    """fairseq compares names of optimizers, and in fp16 and bf16 all have one."""
    other = {fused_adamw: lamb_torch, lamb_torch: fused_adamw}[make]
    trajectory(stranger := other(params := parameters()), params, steps=range(2))
    with pytest.raises(UserError) as error:
        make(parameters()).load_state_dict(stranger.state_dict())
    name, lacking = {
        fused_adamw: ("fused_adamw", "step"),
        lamb_torch: ("lamb_torch", "adam_debias, step, weight_decouple"),
    }[make]
    assert str(error.value) == (
        f"--optimizer {name} can't go on from the checkpoint, which another one wrote: it has no "
        f"{lacking}; take the --optimizer that it was trained with, or start a new one with "
        "--reset-optimizer"
    )


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        (kind, {f"{name}_{key}": value}, text.format(name=name))
        for kind, name in ((FusedAdamW, "adam"), (LambTorch, "lamb"))
        for key, value, text in [
            *(
                ("betas", value, "--{name}-betas must be two numbers from 0 to below 1, but is "
                 f"{value!r}: write '(0.9, 0.999)'")
                for value in ("(0.9, 1)", "(0.9,)", "(0.9, 'x')", "(-0.1, 0.9)", "0.9", "",
                              "print(1)", [True, 0])
            ),
            *(
                ("eps", value, f"--{{name}}-eps must be a number above 0, but is {value}: write "
                 "1e-6, say")
                for value in (0.0, -1.0, float("nan"), float("inf"))
            ),
        ]
    ] + [
        (kind, {"weight_decay": -1.0},
         "--weight-decay must be a number from 0 on, but is -1.0: write 0.01, say")
        for kind in (FusedAdamW, LambTorch)
    ],
)  # fmt: skip
def test_wrong_options_are_refused_in_words(kind, options, text):
    with pytest.raises(UserError) as error:
        build(kind, parameters(), **options)
    assert str(error.value) == text


@pytest.mark.parametrize("given", ["(0.8, 0.9)", "[0.8, 0.9]", "0.8,0.9", (0.8, 0.9), [0.8, 0.9]])
def test_betas_are_text_or_a_list(given):
    assert build(FusedAdamW, parameters(), adam_betas=given).optimizer_config["betas"] == (0.8, 0.9)


# half precision


def wrapped(make, monkeypatch, wrapper=FP16Optimizer, dtype=torch.float16, **options):
    """(optimizer, parameters) as fairseq wraps it for half precision, on a CPU."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # the number of a CPU

    def build_optimizer(_, params):
        return make([p for d in params for p in d.values()] if isinstance(params, list) and
                    isinstance(params[0], dict) else params)  # fmt: skip

    monkeypatch.setattr("fairseq.optim.build_optimizer", build_optimizer)
    common = {"fp16_init_scale": 4, "fp16_scale_window": 128, "fp16_scale_tolerance": 0.0,
              "threshold_loss_scale": None, "min_loss_scale": 1e-4}  # fmt: skip
    cfg = OmegaConf.create({"common": common | options, "optimizer": {}})
    params = [torch.nn.Parameter(p.detach().to(dtype)) for p in parameters()]
    return wrapper.build_optimizer(cfg, params), params


def half_trajectory(optimizer, params, steps=range(STEPS)):
    """Where the float32 copies are after these updates."""
    fp16 = optimizer.scaler is not None
    for step in steps:
        optimizer.zero_grad()
        give_gradients(params, step)
        if fp16:  # gradients of this size are nothing in fp16: they come scaled
            give_gradients(copies := [p.detach().float() for p in params], step)
            for p, copy in zip(params, copies, strict=True):
                p.grad = (4e4 * copy.grad).half()
            optimizer.multiply_grads(1e-4)
        optimizer._needs_sync = True
        optimizer.clip_grad_norm(0.0)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in optimizer.fp32_optimizer.params])


def fairseqs_adam(params):
    options = {"adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, "weight_decay": 0.01}
    return FairseqAdam(FairseqAdamConfig(lr=[0.01], **options), params)


HALF = {
    "fp16": {},
    "fp16, not flat": {"fp16_no_flatten_grads": True},
    "bf16": {"bf16": True, "dtype": torch.bfloat16},
}


@pytest.mark.parametrize("options", HALF.values(), ids=list(HALF))
def test_in_half_precision_fused_adamw_takes_the_steps_of_fairseqs_adam(options, monkeypatch):
    end = half_trajectory(*wrapped(fused_adamw, monkeypatch, **options))
    adams = half_trajectory(*wrapped(fairseqs_adam, monkeypatch, **options))
    assert difference(end, adams) <= ROUNDING


@pytest.mark.parametrize("options", HALF.values(), ids=list(HALF))
@pytest.mark.parametrize("before", [fused_adamw, fairseqs_adam])
def test_in_half_precision_fused_adamw_resumes(before, options, monkeypatch):
    whole = half_trajectory(*wrapped(before, monkeypatch, **options))
    first, params = wrapped(before, monkeypatch, **options)
    half_trajectory(first, params, range(25))
    second, _ = wrapped(fused_adamw, monkeypatch, **options)
    for new, old in zip(second.fp32_optimizer.params, first.fp32_optimizer.params, strict=True):
        new.data.copy_(old.data)
    second.load_state_dict(through_a_file(first.state_dict()), {})
    end = half_trajectory(second, second.fp16_params, range(25, STEPS))
    assert difference(end, whole) <= (0 if before is fused_adamw else ROUNDING)


def test_lamb_wants_its_tensors_apart(monkeypatch):
    with pytest.raises(RuntimeError) as error:
        wrapped(lamb_torch, monkeypatch)
    assert mistake_behind(error.value) == (
        "--fp16 makes one long vector of all parameters, but the optimizer LambTorch needs each "
        "by itself: add --fp16-no-flatten-grads, or take --bf16"
    )
    wrapped(lamb_torch, monkeypatch, fp16_no_flatten_grads=True)


@EACH
def test_moments_in_half_precision_are_refused(make, monkeypatch):
    with pytest.raises(ValueError, match="Unsupported") as error:
        wrapped(make, monkeypatch, MemoryEfficientFP16Optimizer)
    name = {fused_adamw: "FusedAdamW", lamb_torch: "LambTorch"}[make]
    assert mistake_behind(error.value) == (
        "--memory-efficient-fp16 and --memory-efficient-bf16 keep no float32 copy of the "
        f"parameters, which the optimizer {name} needs: take --fp16 or --bf16, or --optimizer adam"
    )


# linear_ratio


class NoOptimizer(FairseqOptimizer):
    """Has a learning rate, and no more."""

    def __init__(self):
        self._optimizer = torch.optim.SGD(parameters(), lr=1.0)


def schedule(**options):
    given = {"lr": [1.0], "max_update": 0, "max_epoch": 0, "update_freq": [1],
             "skip_remainder_batch": False, "warmup_ratio": 0.25} | options  # fmt: skip
    return LinearRatio(LinearRatioConfig(**given), NoOptimizer())


def rates(schedule, updates):
    return pytest.approx([schedule.step_update(update) for update in updates])


def test_the_rate_rises_and_falls_linearly():
    by_update = [0, 0.5, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0, 0]
    assert by_update == rates(schedule(max_update=8), range(10))


def test_it_can_end_above_zero():
    by_update = [0, 0.5, 1, 0.75, 0.5, 0.25, 0.25]
    assert by_update == rates(
        schedule(max_update=5, warmup_ratio=0.4, end_learning_rate=0.25), range(7)
    )


@pytest.mark.parametrize("total", [10, 2036, 2296])
@pytest.mark.parametrize("ratio", [0, 0.06, 0.29])
def test_it_is_fairseqs_polynomial_decay(total, ratio):
    warmup = int(100 * ratio + 0.5) * total // 100
    config = PolynomialDecayLRScheduleConfig(
        lr=[0.5], warmup_updates=warmup, total_num_update=total, end_learning_rate=0.01
    )
    fairseqs = PolynomialDecayLRSchedule(config, NoOptimizer())
    ours = schedule(lr=[0.5], max_update=total, warmup_ratio=ratio, end_learning_rate=0.01)
    assert [fairseqs.step_update(u) for u in range(1, total + 5)] == rates(
        ours, range(1, total + 5)
    )


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({"max_epoch": 3}, 30),
        ({"max_epoch": 3, "max_update": 20}, 20),
        ({"max_epoch": 3, "max_update": 40}, 30),
        ({"max_epoch": 3, "update_freq": [4]}, 9),
        ({"max_epoch": 4, "update_freq": [1, 4]}, 10 + 3 + 3 + 3),
        ({"max_epoch": 3, "skip_remainder_batch": True}, 27),
        ({"max_epoch": 4, "update_freq": [1, 4], "skip_remainder_batch": True}, 9 + 2 + 2 + 2),
        ({"max_update": 20}, 20),
    ],
)
def test_an_epoch_of_ten_batches_gives_the_number_of_updates(options, total):
    linear = schedule(**options)
    linear.learn_epoch_size(10)
    assert linear.total == total


def test_before_it_knows_an_epoch_it_leaves_the_rate_alone():
    linear = schedule(max_epoch=2)
    assert [linear.step_update(0), linear.step_update(5)] == [1, 1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_update": 0},
         "--lr-scheduler linear_ratio must know when training ends, but neither --max-update nor "
         "--max-epoch is given: give one"),
        ({"lr": [1.0, 0.5]},
         "--lr-scheduler linear_ratio takes one --lr, but 2 are given: give the largest"),
        ({"warmup_ratio": 1.0},
         "--warmup-ratio must be from 0 to below 1, but is 1.0: 0.06 is RoBERTa's"),
        ({"warmup_ratio": -0.1},
         "--warmup-ratio must be from 0 to below 1, but is -0.1: 0.06 is RoBERTa's"),
        ({"end_learning_rate": 2.0},
         "--end-learning-rate must be from 0 to --lr 1.0, but is 2.0: leave it out for 0"),
    ],
)  # fmt: skip
def test_a_schedule_that_can_not_be_is_refused(options, text):
    with pytest.raises(UserError) as error:
        schedule(**({"max_update": 8} | options))
    assert str(error.value) == text


# in fairseq-train

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
IN_TRAINING = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=list(OPTIMIZERS))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


def logged(done, key):
    """All values of a key in fairseq's log, in their order."""
    assert done.status == 0, done.err
    lines = [json.loads(text) for text in re.findall(r"\{\"epoch\".*\}", done.text)]
    return [float(line[key]) for line in lines if key in line]


def tensors(folder):
    """What training has come to: the parameters, and the optimizer's state by parameter."""
    with open(folder / "checkpoint_last.pt", "rb") as file:
        state = loading.read(file, "cpu")
    found = dict(state["model"])
    for number, of_one in state["last_optimizer_state"]["state"].items():
        found |= {f"{number}.{name}": torch.as_tensor(value) for name, value in of_one.items()}
    return found


def assert_same_end(one, other):
    one, other = tensors(one), tensors(other)
    assert one.keys() == other.keys()
    assert [n for n, value in one.items() if not torch.equal(value, other[n])] == []


def assert_nearly_same_end(one, other):
    """fairseq saves bf16 parameters, not the float32 copies: a resumed run starts from rounded
    ones, with any optimizer."""
    one, other = tensors(one), tensors(other)
    assert one.keys() == other.keys()
    for name in (n for n in one if not n[0].isdigit()):  # the model's
        torch.testing.assert_close(one[name], other[name], rtol=0.01, atol=0.005)


@IN_TRAINING
@pytest.mark.parametrize(
    ("more", "assert_end"),
    [
        pytest.param((), assert_same_end, id="float32"),
        pytest.param(BF16, assert_nearly_same_end, id="bf16", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_resumes_and_ends_as_if_it_had_not_been(
    optimizer, more, assert_end, data, tmp_path
):
    train = partial(run, "train", data, *TRAIN, *optimizer, *more, "--save-dir")
    whole = train(tmp_path / "whole")
    # Four batches an epoch; the rate is that of the update to come.
    rates = [0.005, 0.01, 0.01 * 5 / 6, 0.01 * 4 / 6, 0.005, 0.01 * 2 / 6, 0.01 / 6, 0]
    assert logged(whole, "lr") == pytest.approx(rates, abs=1e-7)
    in_epoch_two = ("fairseq.trainer:Trainer.train_step", 7)
    killed = train(tmp_path / "killed", first=partial(kill_on_call, *in_epoch_two))
    assert killed.status == -9, killed.err
    resumed = train(tmp_path / "killed")
    assert "Loaded checkpoint" in resumed.text
    assert logged(resumed, "lr") == pytest.approx(rates[6:], abs=1e-7)
    assert_end(tmp_path / "killed", tmp_path / "whole")


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
        "error: --lr-scheduler linear_ratio can't tell how many updates --max-epoch 2 is, as not "
        "every epoch has the same batches: give --max-update",
    )


def test_fairseq_train_says_what_is_wrong_with_an_option(data, tmp_path):
    done = run("train", data, *TRAIN, *OPTIMIZERS["fused_adamw"], "--save-dir", tmp_path,
               "--adam-betas", "print(1)")  # fmt: skip
    assert (done.status, done.last) == (
        1,
        "error: --adam-betas must be two numbers from 0 to below 1, but is 'print(1)': write "
        "'(0.9, 0.999)'",
    )


def test_fairseqs_adam_is_not_resumed_in_float32_without_a_word(data, tmp_path):
    done = run("train", data, *TRAIN, "--save-dir", tmp_path, "--max-epoch", "1")
    assert done.status == 0, done.err
    done = run("train", data, *TRAIN, *OPTIMIZERS["fused_adamw"], "--save-dir", tmp_path)
    assert (done.status, done.last) == (
        1,
        f"error: {tmp_path}/checkpoint_last.pt can't be resumed from: Optimizer does not match; "
        "please reset the optimizer (--reset-optimizer). FairseqAdam vs FusedAdamW",
    )


# on a GPU

ON_GPU = [argument for argument in TRAIN if argument != "--cpu"]


@pytest.mark.gpu
@GRADIENTS
def test_on_a_gpu_fused_adamw_takes_the_steps_of_fairseqs_adam(there):
    assert (
        difference(moved(AdamW, there, device="cuda"), moved(Adam, there, device="cuda"))
        <= ROUNDING
    )


@pytest.mark.gpu
@IN_TRAINING
@pytest.mark.parametrize("more", [(), ("--fp16", "--fp16-no-flatten-grads"), BF16])
def test_on_a_gpu_a_killed_run_resumes(optimizer, more, data, tmp_path):
    train = partial(run, "train", data, *ON_GPU, *optimizer, *more, "--save-dir")
    assert train(tmp_path / "whole").status == 0
    in_epoch_two = ("fairseq.trainer:Trainer.train_step", 7)
    assert train(tmp_path / "killed", first=partial(kill_on_call, *in_epoch_two)).status == -9
    resumed = train(tmp_path / "killed")
    assert resumed.status == 0, resumed.err
    one, other = tensors(tmp_path / "killed"), tensors(tmp_path / "whole")
    for name in (n for n in one if not n[0].isdigit()):  # GPUs add in any order
        torch.testing.assert_close(one[name].float(), other[name].float(), rtol=0.01, atol=0.005)


@pytest.mark.gpu
def test_on_a_gpu_fp16_gets_over_an_overflow(data, tmp_path):
    """Flat parameters, and a scale so large that the first updates are left out."""
    done = run("train", data, *ON_GPU, *OPTIMIZERS["fused_adamw"], "--save-dir", tmp_path,
               "--fp16", "--fp16-init-scale", 2**40, "--fp16-scale-tolerance", "0")  # fmt: skip
    assert done.status == 0, done.err
    assert "gradient overflow detected" in done.text
    with open(tmp_path / "checkpoint_last.pt", "rb") as file:
        state = loading.read(file, "cpu")
    counts = [of_one["step"] for of_one in state["last_optimizer_state"]["state"].values()]
    assert counts == [state["optimizer_history"][-1]["num_updates"]]


@pytest.mark.gpu
def test_on_a_gpu_lamb_wants_its_tensors_apart(data, tmp_path):
    done = run("train", data, *ON_GPU, *OPTIMIZERS["lamb_torch"], "--fp16", "--save-dir", tmp_path)
    assert (done.status, done.last) == (
        1,
        "error: --fp16 makes one long vector of all parameters, but the optimizer LambTorch needs "
        "each by itself: add --fp16-no-flatten-grads, or take --bf16",
    )
