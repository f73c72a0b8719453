"""Measures of score matrices: distance, entropy, rank and explained variance.

Notation: ... any leading dimensions, Tq queries, Tk keys, or T tokens that are queries and keys. A
score is an argument of the softmax, in nats. A constant that is added to a whole row changes
neither the softmax nor the measures here, except the ranks.
"""

from functools import cache

import torch
from torch import Tensor


def hide_future(scores: Tensor, causal: bool) -> Tensor:
    """Scores (..., T, T); if ``causal``, they are -inf where the key comes after the query."""
    if not causal:
        return scores
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf"))


def attention_weights(scores: Tensor, causal: bool = False) -> Tensor:
    """softmax of scores (..., Tq, Tk) over the visible keys."""
    return hide_future(scores, causal).softmax(-1)


def centre_rows(scores: Tensor, causal: bool = False) -> Tensor:
    """Scores (..., Tq, Tk) minus the mean of their row, NaN for hidden keys."""
    visible = hide_future(scores, causal)
    visible = visible.masked_fill(visible.isinf(), float("nan"))
    return visible - visible.nanmean(-1, keepdim=True)


def offsets(queries: int, keys: int) -> Tensor:
    """(Tq, Tk) int64: the offset j - i."""
    return torch.arange(keys) - torch.arange(queries).unsqueeze(1)


def mean_distance(weights: Tensor) -> Tensor:
    """Mean distance in tokens between query and key: weights (..., T, T) -> (...)."""
    return (weights * offsets(*weights.shape[-2:]).abs()).sum(-1).mean(-1)


def entropy(weights: Tensor) -> Tensor:
    """Mean entropy of a query's weights, in nats: (..., Tq, Tk) -> (...)."""
    return torch.special.entr(weights).sum(-1).mean(-1)


def mean_by_offset(matrix: Tensor) -> Tensor:
    """The mean along each diagonal, (..., T, T) -> (..., 2 T - 1), offsets 1 - T to T - 1."""
    tokens = matrix.size(-1)
    return torch.stack(
        [matrix.diagonal(offset, -2, -1).mean(-1) for offset in range(1 - tokens, tokens)], -1
    )


def first_token_weight(weights: Tensor) -> Tensor:
    """Mean weight of the first token for later queries: (..., T, Tk) -> (...)."""
    return weights[..., 1:, 0].mean(-1)


def offset_share(scores: Tensor, causal: bool = False) -> Tensor:
    """Share of the variance within rows that the offset explains: scores (..., T, T) -> (...).

    The fit has one number for each offset, by least squares; the share is 1 for a Toeplitz matrix.
    """
    centred = centre_rows(scores.double(), causal).nan_to_num(0.0)
    tokens = scores.size(-1)
    pairs = tokens - torch.arange(1 - tokens, tokens).abs()
    sums = mean_by_offset(centred) * pairs  # (..., 2 T - 1)
    explained = (sums @ _offset_pseudo_inverse(tokens, causal) * sums).sum(-1)
    total = centred.square().sum((-2, -1))
    # rows that are constant up to float32's rounding have nothing to explain
    noise = (1e-5 * scores.double().abs().amax((-2, -1))).square() * tokens**2
    return torch.where(total > noise, explained / total.clamp(min=1e-300), 0.0).clamp(0, 1).float()


@cache
def _offset_pseudo_inverse(tokens: int, causal: bool) -> Tensor:
    """(X^T X)^+ of the least squares in `offset_share`, (2 T - 1, 2 T - 1).

    X has a row for each visible pair of query and key, and a column for each offset. An entry is 1
    if the pair has this offset, otherwise 0, minus the mean of the column over the query's keys.
    """
    offset = offsets(tokens, tokens)
    visible = (offset <= 0 if causal else torch.ones_like(offset)).double()
    queries = torch.zeros(tokens, 2 * tokens - 1, dtype=torch.float64)
    queries.scatter_(1, offset + tokens - 1, visible)  # 1 where the query has a key at the offset
    products = queries.sum(0).diag() - queries.T @ (queries / queries.sum(1, keepdim=True))
    return torch.linalg.pinv(products, rtol=1e-10, hermitian=True)


def name_head(weights: Tensor, causal: bool = False) -> str:
    """The name of a head with the weights (T, T): "first token", an offset, "local" or "global".

    A head is named after the first token if this token has at least 30% of the weight, or after an
    offset that has at least 20%, and in both cases at least twice its weight in uniform attention.
    A head is local if its mean distance is below 60% of the distance in uniform attention.
    """
    equal = attention_weights(torch.zeros_like(weights), causal)
    if first_token_weight(weights) >= max(0.3, 2 * float(first_token_weight(equal))):
        return "first token"
    by_offset, equal_by_offset = mean_by_offset(weights), mean_by_offset(equal)
    tokens = weights.size(-1)
    middle = slice(tokens // 2, tokens // 2 + tokens)  # offsets that half of the queries have
    best = int(by_offset[middle].argmax()) + middle.start
    if by_offset[best] >= max(0.2, 2 * float(equal_by_offset[best])):
        offset = best - tokens + 1
        side = "before" if offset < 0 else "after"
        names = {-1: "previous token", 0: "itself", 1: "next token"}
        return names.get(offset, f"{abs(offset)} tokens {side}")
    return "local" if mean_distance(weights) < 0.6 * mean_distance(equal) else "global"


def singular_values(matrices: Tensor) -> Tensor:
    """(..., Tq, Tk) -> (..., min(Tq, Tk)), descending, in float64."""
    return torch.linalg.svdvals(matrices.double())


def rank(singular: Tensor, tolerance: float = 1e-5) -> Tensor:
    """Number of singular values above ``tolerance`` times the largest: (..., r) -> (...)."""
    return (singular > tolerance * singular.amax(-1, keepdim=True)).sum(-1)


def effective_rank(singular: Tensor) -> Tensor:
    """exp of the entropy of singular values' shares, Roy & Vetterli (2007): (..., r) -> (...).

    It is r if r values are equal and all others 0; it is 0 for a matrix of zeros.
    """
    singular = singular.double()
    total = singular.sum(-1, keepdim=True)
    share = singular / total.clamp(min=1e-300)
    return torch.special.entr(share).sum(-1).exp() * (total.squeeze(-1) > 0)


def head_measures(weights: Tensor, singular: Tensor, has_offsets: bool) -> dict[str, Tensor]:
    """Measures of heads: name of the column in tables -> (...).

    Args:
        weights: (..., Tq, Tk)
        singular: (..., r), singular values of the heads' scores
        has_offsets: whether queries and keys are the same tokens
    """
    distance = {"distance": mean_distance(weights)} if has_offsets else {}
    ranks = {"rank": rank(singular), "effective rank": effective_rank(singular)}
    return distance | {"entropy": entropy(weights)} | ranks


def cosines(vectors: Tensor) -> Tensor:
    """(T, d) -> (T, T): the cosine similarity of all pairs."""
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    return unit @ unit.T
