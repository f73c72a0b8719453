"""Optimizers take the known steps, resumed or not, in half precision, too."""

import sys

import pytest
import torch
from fairseq.optim import FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.optim.adam import Adam, FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from diet_fairseq.errors import UserError
from diet_fairseq.optim.fused_adamw import AdamW, FusedAdamW
from diet_fairseq.optim.lamb_torch import LambTorch
from tests.support.optimizers import (
    EACH,
    GRADIENTS,
    HYPER,
    ROUNDING,
    SHAPES,
    STEPS,
    build,
    difference,
    fused_adamw,
    give_gradients,
    lamb_torch,
    moved,
    parameters,
    sometimes,
    through_a_file,
    trajectory,
)

# fused_adamw


class OneCount(AdamW):
    """A mutant: all parameters have had as many updates as there were."""

    steps = 0

    def _count_updates(self, parameter):
        return self.steps

    def step(self, closure=None):
        super().step(closure)
        self.steps += 1


@GRADIENTS
def test_fused_adamw_takes_the_steps_of_fairseqs_adam(active):
    assert difference(moved(AdamW, active), moved(Adam, active)) <= ROUNDING


def test_each_parameter_has_its_own_number_of_updates():
    """The control to `sometimes`."""
    assert difference(moved(OneCount), moved(Adam)) <= ROUNDING
    assert difference(moved(OneCount, sometimes), moved(Adam, sometimes)) > 10 * ROUNDING


def test_gradients_may_have_another_memory_layout_than_parameters():
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


def test_the_registered_optimizer_takes_the_same_steps():
    params = parameters()
    assert difference(trajectory(fused_adamw(params), params), moved(Adam)) <= ROUNDING


def test_eps_is_saved_as_given():
    params = parameters()
    optimizer = fused_adamw(params)
    trajectory(optimizer, params, steps=range(3))
    assert optimizer.state_dict()["param_groups"][0]["eps"] == 1e-6
    optimizer.load_state_dict(through_a_file(optimizer.state_dict()), {"eps": 1e-3, "lr": 0.5})
    assert (optimizer.param_groups[0]["eps"], optimizer.get_lr()) == (1e-3, 0.5)


@GRADIENTS
def test_fused_adamw_resumes_from_fairseqs_adam(active):
    """fairseq's Adam saves its count of updates as an int."""
    params = parameters()
    adam = Adam(params, **HYPER)
    trajectory(adam, params, active, range(25))
    optimizer = fused_adamw(params)
    optimizer.load_state_dict(through_a_file(adam.state_dict()))
    end = trajectory(optimizer, params, active, range(25, STEPS))
    assert difference(end, moved(Adam, active)) <= ROUNDING
    counts = [state["step"] for state in optimizer.optimizer.state.values()]
    assert {count.dtype for count in counts} == {torch.float32}
    assert optimizer.param_groups[0]["fused"]


# lamb_torch


def lamb_by_loops(active):
    """ALBERT's LAMB, tensor by tensor."""
    params, moments = [p.data for p in parameters(size=1)], {}
    b1, b2, eps, decay = *HYPER["betas"], HYPER["eps"], HYPER["weight_decay"]
    for step in range(STEPS):
        give_gradients(copies := [torch.nn.Parameter(p) for p in params], step, active)
        for number, x in enumerate(params):
            gradient = copies[number].grad
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
def test_lamb_takes_the_published_steps(active):
    params = parameters(size=1)
    assert params[0].norm() > 10  # more than the package would let it count as
    end = trajectory(lamb_torch(params), params, active)
    assert difference(end, lamb_by_loops(active)) <= 10 * ROUNDING


@pytest.mark.parametrize("size", [0.0, 2.0], ids=["zero", "not zero"])
def test_lamb_adds_eps_to_the_norm_of_an_update(size):
    x = torch.nn.Parameter(torch.full((2, 3), size))
    x.grad = torch.full((2, 3), 0.5)
    before = x.detach().clone()
    options = {"lamb_betas": "(0.9, 0.98)", "weight_decay": 0.01, "lamb_eps": 0.1}
    optimizer = build(LambTorch, [x], **options)
    b1, b2, lr, decay = *HYPER["betas"], HYPER["lr"], HYPER["weight_decay"]
    u = (1 - b1) * x.grad / (((1 - b2) * x.grad**2).sqrt() + 0.1) + decay * before
    ratio = before.norm() / (u.norm() + 0.1) if size else 1.0
    optimizer.step()
    torch.testing.assert_close(x.detach(), before - lr * ratio * u)


def test_lamb_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(UserError, match=r"in the checkout, pip install '.\[pretraining\]', or use"):
        build(LambTorch, parameters())


@EACH
@GRADIENTS
def test_a_resumed_optimizer_ends_as_if_uninterrupted(make, active):
    whole = trajectory(make(params := parameters()), params, active)
    first = make(params := parameters())
    trajectory(first, params, active, range(25))
    second = make(params := [torch.nn.Parameter(p.detach().clone()) for p in params])
    second.load_state_dict(through_a_file(first.state_dict()), {})
    assert torch.equal(trajectory(second, params, active, range(25, STEPS)), whole)


@EACH
def test_the_state_of_another_optimizer_is_refused(make):
    """fairseq compares names of optimizers, and in fp16 and bf16 all have one."""
    kind = {fused_adamw: lamb_torch, lamb_torch: fused_adamw}[make]
    trajectory(stranger := kind(params := parameters()), params, steps=range(2))
    with pytest.raises(UserError) as error:
        make(parameters()).load_state_dict(stranger.state_dict())
    name, lacking = {
        fused_adamw: ("fused_adamw", "step"),
        lamb_torch: ("lamb_torch", "adam_debias, step, weight_decouple"),
    }[make]
    assert str(error.value) == (
        f"--optimizer {name} can't resume from the checkpoint, whose optimizer state does not fit "
        f"(another optimizer wrote it: it has no {lacking}); give an undamaged checkpoint "
        "and the options of its run, or start with a new optimizer state (--reset-optimizer)"
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
                ("eps", value, f"--{{name}}-eps must be a number above 0, but is {value}: 1e-6 "
                 "is usual")
                for value in (0.0, -1.0, float("nan"), float("inf"))
            ),
        ]
    ] + [
        (kind, {"weight_decay": -1.0},
         "--weight-decay must be at least 0, but is -1.0: 0.01 is usual")
        for kind in (FusedAdamW, LambTorch)
    ],
)  # fmt: skip
def test_wrong_options_are_refused(kind, options, text):
    with pytest.raises(UserError) as error:
        build(kind, parameters(), **options)
    assert str(error.value) == text


@pytest.mark.parametrize("betas", ["(0.8, 0.9)", "[0.8, 0.9]", "0.8,0.9", (0.8, 0.9), [0.8, 0.9]])
def test_betas_are_text_or_a_list(betas):
    assert build(FusedAdamW, parameters(), adam_betas=betas).optimizer_config["betas"] == (0.8, 0.9)


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
    """The float32 copies after these updates."""
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


def test_lamb_refuses_flat_parameters(monkeypatch):
    with pytest.raises(RuntimeError, match="LambTorch does not support flat params"):
        wrapped(lamb_torch, monkeypatch)
    wrapped(lamb_torch, monkeypatch, fp16_no_flatten_grads=True)


@EACH
def test_moments_in_half_precision_are_refused(make, monkeypatch):
    with pytest.raises(ValueError, match="Unsupported optimizer"):
        wrapped(make, monkeypatch, MemoryEfficientFP16Optimizer)


# on a GPU


@pytest.mark.gpu
@GRADIENTS
def test_on_a_gpu_fused_adamw_takes_the_steps_of_fairseqs_adam(active):
    assert (
        difference(moved(AdamW, active, device="cuda"), moved(Adam, active, device="cuda"))
        <= ROUNDING
    )
