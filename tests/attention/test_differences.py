"""Scores that are differences of large numbers, in fused attention and in half precision."""

import math

import pytest
import torch
from torch import Tensor

from diet_fairseq.attention.backends import BACKENDS, AttentionCall
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Differences, Factors, join_parts, split_for
from tests.support import mutants, tiny

HALVES = (torch.bfloat16, torch.float16)
TOKENS = 400
LAYOUT = Layout.of_self_attention(torch.zeros(1, TOKENS, dtype=torch.bool), causal=True)


def decays() -> Tensor:
    """(1, 2, T, 1): numbers that fall to about -120 and -9,600, there in the first half alone."""
    steps = tiny.vectors(1, 2, TOKENS, 1).abs() * torch.tensor([0.38, 60.0]).view(1, 2, 1, 1)
    steps[:, 1, TOKENS // 2 :] /= 1000
    return -steps.cumsum(2)


def attend(backend: str, dtype: torch.dtype, *inputs: Tensor) -> Tensor:
    """Attention of q, k, v in the type, with the differences of decays that stay in float32."""
    q, k, v = (x.to(dtype) for x in inputs[:3])
    score = Differences(inputs[3], inputs[3])
    out, _ = BACKENDS[backend](AttentionCall(q, k, v, (score,), (), LAYOUT, 0.0))
    return out


def inputs() -> list[Tensor]:
    return [*(tiny.vectors(1, 2, TOKENS, 8, seed=n) for n in (5, 6, 7)), decays()]


def expected_output(q: Tensor, k: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """The equation in double precision."""
    q, k, v, c = (x.double() for x in (q, k, v, c))
    future = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    logits = (q @ k.mT + c - c.mT).masked_fill(future, -math.inf)
    return logits.softmax(-1) @ v


def error(backend: str, dtype: torch.dtype) -> float:
    *vectors, c = inputs()
    expected = expected_output(*(x.to(dtype) for x in vectors), c)
    return tiny.difference(attend(backend, dtype, *vectors, c).double(), expected)


def check_half_precision(backend: str) -> None:
    """The error is about that of the reference, which subtracts in float32."""
    for dtype in HALVES:
        assert error(backend, dtype) <= error("reference", dtype) <= 0.05


@pytest.mark.parametrize("backend", ["factors", "sdpa"])
def test_differences_are_as_exact_in_half_precision_as_other_scores(backend):
    check_half_precision(backend)


MUTANTS: mutants.Table = [
    (check_half_precision, mutants.one_part_of_a_difference, "factors"),
    (check_half_precision, mutants.two_parts_of_a_difference, "factors"),
    (check_half_precision, mutants.differences_with_the_other_sign, "sdpa"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)


@pytest.mark.parametrize("backend", ["reference", "factors", "sdpa"])
def test_the_gradients_of_differences_are_those_of_the_equation(backend):
    both = []
    for compute in (expected_output, lambda *x: attend(backend, torch.float32, *x)):
        *vectors, c = inputs()
        given = [x.requires_grad_() for x in (*vectors, c / 80)]
        tiny.some_loss(compute(*given)).backward()
        both.append([x.grad for x in given])
    for gradient, expected in zip(*reversed(both), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("dtype", "smallest"), [(torch.bfloat16, 0.0), (torch.float16, 2**-24)])
def test_the_parts_of_a_number_sum_up_to_it_exactly(dtype, smallest):
    numbers = torch.cat([decays().flatten(), torch.tensor([0.0, 1.0, -1 / 3, 40000.0 / 7])])
    numbers = numbers.view(2, 1, -1, 2)
    parts = split_for(dtype, numbers)
    assert (parts.dtype, parts.shape[-1]) == (dtype, 6)
    torch.testing.assert_close(join_parts(parts, 2), numbers, rtol=0, atol=smallest / 2)


def test_a_split_number_has_the_gradient_of_its_first_part():
    numbers = torch.tensor([[0.1, -300.7]], requires_grad=True)
    weights = torch.arange(1.0, 7.0)
    (split_for(torch.bfloat16, numbers).float() * weights).sum().backward()
    assert numbers.grad.tolist() == [[1.0, 2.0]]


def test_a_number_and_its_difference_have_the_rank_of_their_columns():
    q, k = tiny.vectors(1, 2, 3, 1), tiny.vectors(1, 2, 5, 1)
    for score, rank in ((Factors(q, k), 1), (Differences(q, k), 2)):
        columns = score.columns(torch.float32)
        assert score.rank == rank == columns[0].size(-1) == columns[1].size(-1)
        torch.testing.assert_close(columns[0] @ columns[1].mT, score.dense(LAYOUT))
        halved = score.times(0.5)
        assert type(halved) is type(score)
        torch.testing.assert_close(halved.dense(LAYOUT) * 2, score.dense(LAYOUT))
