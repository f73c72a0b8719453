"""What is remembered at inference is what would be computed, whatever happened since."""

import copy
import pickle

import mutants
import pytest
import tiny
import torch
from tiny import SOURCES, TARGETS, Case
from torch import nn

from diet_fairseq import memo
from diet_fairseq.positions import PositionScheme

FIRST = tiny.first_of_each_scheme(
    [case for case in tiny.IN_ATTENTION if not case.kind.reads_queries]
)


def read(model: nn.Module, length: int = 9, others: int = 0, left: bool = False) -> torch.Tensor:
    """The logits of a sentence and of ``others`` beside it that are shorter."""
    sources = [SOURCES[0][:length]] + [SOURCES[1][:3]] * others
    targets = [TARGETS[1][:length]] + [TARGETS[0][:3]] * others
    return tiny.logits(model, sources, targets, left, left)


def remembering(model: nn.Module) -> list[PositionScheme]:
    return [scheme for scheme in tiny.schemes_in(model).values() if scheme.memo._kept is not None]


def assert_nothing_is_stale(model: nn.Module, *batch: int) -> None:
    """It reads as a copy does, which begins anew."""
    assert torch.equal(read(model, *batch), read(copy.deepcopy(model), *batch))


@torch.no_grad()
def check_batches(case: Case) -> None:
    model = tiny.own(case)
    for batch in ((9,), (5,), (9,), (9, 1, False), (9, 1, True), (9, 1, False), (9,)):
        assert_nothing_is_stale(model, *batch)
    assert remembering(model)


@tiny.each(tiny.IN_ATTENTION)
def test_batches_of_other_lengths_and_padding_do_not_disturb_what_is_remembered(case):
    check_batches(case)


def in_place(model):
    for parameter in tiny.position_parameters(model).values():
        parameter.add_(0.5)


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


CHANGES = [in_place, another_tensor, loading, another_precision, a_step]


@torch.no_grad()
def check_changes(case: Case) -> None:
    for change in CHANGES:
        model = tiny.own(case)
        before = read(model)
        change(model)
        assert_nothing_is_stale(model)
        assert tiny.difference(read(model), before) > 0, change.__name__


@tiny.each(tiny.IN_ATTENTION)
def test_a_change_of_parameters_is_noticed(case):
    check_changes(case)


@torch.no_grad()
def check_second_time(case: Case) -> None:
    """The scheme is not asked for its score again."""
    model = tiny.own(case)
    first, asked = read(model), []
    assert remembering(model)
    with pytest.MonkeyPatch.context() as patch:
        for scheme in remembering(model):
            original = scheme.score
            patch.setattr(scheme, "score", lambda at, score=original: asked.append(at) or score(at))
        assert torch.equal(read(model), first)
    assert not asked


@tiny.each(FIRST)
def test_the_second_batch_of_a_length_computes_no_scores(case):
    check_second_time(case)


@tiny.each(FIRST)
def test_copies_files_and_training_carry_nothing_of_it(case):
    model = tiny.own(case)
    with torch.no_grad():
        read(model)
    assert remembering(model)
    assert not remembering(copy.deepcopy(model))
    scheme = remembering(model)[0]
    assert pickle.loads(pickle.dumps(scheme)).memo._kept is None
    assert not any("memo" in name for name in model.state_dict())
    read(model.train())
    assert not remembering(model)


@torch.no_grad()
def test_what_is_large_is_not_kept(monkeypatch):
    model = tiny.own(FIRST[0])
    monkeypatch.setattr(memo, "LARGEST", 1)
    read(model)
    assert not remembering(model)


def test_gradients_and_inference_tensors_remember_nothing():
    model = tiny.own(FIRST[0])
    read(model)
    assert not remembering(model)
    with torch.inference_mode():
        made_here = copy.deepcopy(model)
        read(made_here)
        assert not remembering(made_here)
        read(model)
        assert remembering(model)


MUTANTS: mutants.Table = [
    (check_batches, mutants.a_length_that_counts_padding, "tupe_a"),
    (check_changes, mutants.memory_that_ignores_changes, "diet_rel"),
    (check_second_time, mutants.memory_that_forgets, "tupe_r"),
]


@mutants.each(MUTANTS)
def test_a_mutant_is_caught(check, mutant, case):
    mutants.assert_caught(check, mutant, case)
