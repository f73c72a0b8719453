"""Positions follow the current parameters, whatever has changed them."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from tests.support import mutants, tiny
from tests.support.tiny import SOURCES, TARGETS, TOLERANCE, Case

LEARNED = [case for case in tiny.IN_ATTENTION if tiny.has_parameters(case.scheme)]
FIRST = tiny.first_of_each_scheme(LEARNED)


def read(model: nn.Module) -> torch.Tensor:
    """The logits of a sentence."""
    return tiny.logits(model, SOURCES[:1], TARGETS[1:2])


def in_place(model):
    for parameter in tiny.position_parameters(model).values():
        parameter.add_(0.5)


def through_data(model):
    """Change `.data`, as hand-written moving averages do; PyTorch counts no change."""
    for parameter in tiny.position_parameters(model).values():
        parameter.data.lerp_(torch.ones_like(parameter), 0.5)


def through_numpy(model):
    for parameter in tiny.position_parameters(model).values():
        parameter.numpy()[:] += 0.5


def another_tensor(model):
    for parameter in tiny.position_parameters(model).values():
        parameter.data = parameter + 0.5


def loading(model):
    model.load_state_dict({name: value + 0.5 for name, value in model.state_dict().items()})


def another_precision(model):
    model.bfloat16().float()  # rounded


@torch.enable_grad()
def a_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.train()
    read(model).square().mean().backward()
    optimizer.step()
    model.eval()


CHANGES = [
    in_place,
    through_data,
    through_numpy,
    another_tensor,
    loading,
    another_precision,
    a_step,
]


@torch.no_grad()
def check_changes(case: Case, changes: Sequence[Callable[[nn.Module], None]] = CHANGES) -> None:
    """After a change in the midst of inference a model reads as its copy does."""
    for change in changes:
        model = tiny.model_to_change(case)
        before = read(model)
        change(model)
        after = read(model)
        assert torch.equal(after, read(copy.deepcopy(model))), change.__name__
        assert tiny.difference(after, before) > 0, change.__name__


@tiny.each([case for case in FIRST if case.scheme in ("diet_rel", "tupe_a", "shaw", "fire")])
def test_a_change_of_parameters_is_seen_at_once(case):
    check_changes(case)


@tiny.each(LEARNED)
def test_a_change_that_pytorch_does_not_count_is_seen_with_every_option(case):
    check_changes(case, [through_data])


@torch.no_grad()
@tiny.each(FIRST)
def test_autocast_and_its_dtype_leave_no_trace(case):
    model = tiny.model_to_change(case)
    outputs = {}
    for dtype in (None, torch.bfloat16, torch.float16, None, torch.bfloat16):
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            out = read(model)
        assert torch.equal(outputs.setdefault(dtype, out), out)


@torch.no_grad()
@tiny.each(FIRST)
def test_an_ensemble_under_vmap_reads_as_its_models_do(case):
    model, second = tiny.model_to_change(case), tiny.fresh(case, seed=2)
    tokens = (
        (SOURCES[0][None],)
        if tiny.is_encoder(model)
        else (SOURCES[0][None], None, TARGETS[1][None])
    )
    expected = torch.stack([model(*tokens)[0], second(*tokens)[0]])
    out = vmap(lambda *state: functional_call(model, state, tokens)[0])(
        *stack_module_state([model, second])
    )
    torch.testing.assert_close(out, expected, **TOLERANCE)


MUTANTS: mutants.Table = [
    (check_changes, mutants.terms_remembered_until_a_change_is_counted, "diet_rel"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
