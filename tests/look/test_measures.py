"""The numbers of score matrices, against matrices whose numbers can be told by hand."""

import math

import pytest
import torch

from diet_fairseq.look import measures
from diet_fairseq.positions.layout import toeplitz

T = 16
OFFSETS = measures.offsets(T, T)


def peaked(offset: int, height: float = 30.0) -> torch.Tensor:
    return height * (offset == OFFSETS).float()


def test_weights_of_causal_scores_are_zero_after_the_query():
    weights = measures.attention_weights(torch.zeros(3, 3), causal=True)
    torch.testing.assert_close(
        weights, torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
    )


def test_distance_and_entropy_of_looking_at_oneself_are_zero():
    weights = torch.eye(T)
    assert measures.mean_distance(weights) == 0
    assert measures.entropy(weights) == 0


def test_distance_and_entropy_of_equal_weights_are_those_of_the_formula():
    weights = torch.full((2, 3, 3), 1 / 3)
    # queries 0 and 2 have distances 0, 1, 2; query 1 has 1, 0, 1
    assert measures.mean_distance(weights).tolist() == pytest.approx([(1 + 2 / 3 + 1) / 3] * 2)
    assert measures.entropy(weights).tolist() == pytest.approx([math.log(3)] * 2)


def test_the_weight_of_an_offset_is_the_mean_of_its_diagonal():
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.0, 0.4, 0.6]])
    assert measures.mean_by_offset(weights).tolist() == pytest.approx(
        [0.0, 0.25, 1.9 / 3, 0.2, 0.2]
    )


def test_the_first_tokens_share_leaves_out_its_own_query():
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    assert measures.first_token_weight(weights) == 0.25


@pytest.mark.parametrize("causal", [False, True])
def test_the_offset_alone_explains_a_toeplitz_score_with_shifted_rows(causal):
    score = toeplitz(torch.randn(3, 2 * T - 1), T) + 5 * torch.randn(3, T, 1)
    share = measures.offset_share(score, causal)
    torch.testing.assert_close(share, torch.ones(3), atol=1e-4, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_the_share_is_that_of_least_squares(causal):
    score = torch.randn(2, T, T)
    visible = OFFSETS <= 0 if causal else torch.ones(T, T, dtype=torch.bool)
    i, j = visible.nonzero().T
    y = score[:, visible].double()
    rows = torch.nn.functional.one_hot(i).double()
    y = y - y @ torch.linalg.pinv(rows).T @ rows.T  # what rows don't explain
    x = torch.cat([rows, torch.nn.functional.one_hot(j - i + T - 1)], 1).double()
    fit = y @ torch.linalg.pinv(x, rtol=1e-10).T @ x.T
    expected = (fit.square().sum(1) / y.square().sum(1)).float()
    share = measures.offset_share(score, causal)
    torch.testing.assert_close(share, expected, atol=1e-5, rtol=0)


def test_offsets_explain_their_share_of_noise():
    score = torch.randn(200, T, T)
    # 2 T - 1 offsets, one of which rows take up, among T (T - 1) degrees within rows
    expected = (2 * T - 2) / (T * (T - 1))
    assert measures.offset_share(score).mean() == pytest.approx(expected, rel=0.1)


def test_a_score_that_softmax_is_blind_to_has_no_share():
    score = torch.randn(2, T, 1).expand(2, T, T)
    assert measures.offset_share(score).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("score", "name"),
    [
        (peaked(-1), "previous token"),
        (peaked(1), "next token"),
        (peaked(0), "itself"),
        (peaked(-3), "3 tokens before"),
        (peaked(2), "2 tokens after"),
        (30.0 * (torch.arange(T) == 0).expand(T, T).float(), "first token"),
        (-0.5 * (OFFSETS.abs() - 3).clamp(min=0).float(), "local"),
        (torch.zeros(T, T), "global"),
    ],
)
def test_heads_are_named_by_what_they_look_at(score, name):
    assert measures.name_head(measures.attention_weights(score)) == name


@pytest.mark.parametrize("name", ["previous token", "global"])
def test_causal_heads_are_compared_with_equal_weights_on_the_past(name):
    score = peaked(-1) if name == "previous token" else torch.zeros(T, T)
    assert measures.name_head(measures.attention_weights(score, causal=True), causal=True) == name


def test_the_effective_rank_counts_equal_singular_values():
    values = torch.tensor([[2.0, 2.0, 2.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert measures.effective_rank(values).tolist() == pytest.approx([3, 1, 0])
    assert measures.rank(values[:2]).tolist() == [3, 1]
    # shares 3/4 and 1/4
    expected = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert measures.effective_rank(torch.tensor([3.0, 1.0])) == pytest.approx(expected)


def test_cosines_are_1_of_parallel_and_0_of_right_angled_vectors():
    cosines = measures.cosines(torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]))
    assert cosines[0].tolist() == pytest.approx([1, 1, 0, -1])
