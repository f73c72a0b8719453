"""Measures of score matrices: distance, entropy, rank and variance explained.

Notation: ... any leading dimensions, Tq queries, Tk keys, T where the two are the same tokens. A
score is what softmax is taken of, in nats; softmax is blind to a number added to a whole row, and
so is every measure here but those of rank.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

#: a head is named by an offset to which it gives this share of its weight
OFFSET_SHARE = 0.2
#: and by the first token where that gets this share
FIRST_SHARE = 0.3
#: a head is local where it looks less than this times as far as one that sees all keys alike
LOCAL = 0.6
#: offsets with names of their own
NAMES = {-1: "previous token", 0: "itself", 1: "next token"}


def attention(scores: Tensor, causal: bool = False) -> Tensor:
    """softmax of scores (..., Tq, Tk) over the keys that a query sees."""
    return visible(scores, causal).softmax(-1)


def visible(scores: Tensor, causal: bool) -> Tensor:
    """Scores (..., T, T) with -inf where a key comes after the query."""
    if not causal:
        return scores
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf"))


def distances(queries: int, keys: int) -> Tensor:
    """(Tq, Tk) int64: the offset j - i."""
    return torch.arange(keys) - torch.arange(queries).unsqueeze(1)


def mean_distance(weights: Tensor) -> Tensor:
    """Mean distance in tokens between query and key: weights (..., T, T) -> (...)."""
    return (weights * distances(*weights.shape[-2:]).abs()).sum(-1).mean(-1)


def entropy(weights: Tensor) -> Tensor:
    """Mean entropy of queries' weights, in nats: (..., Tq, Tk) -> (...).

    It is 0 where every query looks at one key, and log Tk where all see all keys alike.
    """
    return torch.special.entr(weights).sum(-1).mean(-1)


def mean_of_offset(matrix: Tensor) -> Tensor:
    """(..., T, T) -> (..., 2 T - 1): the mean along each diagonal, offsets 1 - T to T - 1.

    Of weights it is the mean weight of the key at each offset, over the queries that have one.
    """
    tokens = matrix.size(-1)
    return torch.stack(
        [matrix.diagonal(offset, -2, -1).mean(-1) for offset in range(1 - tokens, tokens)], -1
    )


def first_share(weights: Tensor) -> Tensor:
    """Mean weight that queries after the first give to the first token: (..., T, Tk) -> (...)."""
    return weights[..., 1:, 0].mean(-1) if weights.size(-2) > 1 else weights[..., 0].mean(-1)


@dataclass(frozen=True)
class Shares:
    """Explained shares of a score's variance within its rows, the part that softmax sees.

    Attributes:
        offset: (...), by a number for every offset j - i: 1 for a score that is Toeplitz
        first: (...), by the first token: a number for it as a key, and one for each of its own keys
        both: (...), by the two together
    """

    offset: Tensor
    first: Tensor
    both: Tensor


def shares(scores: Tensor, causal: bool = False) -> Shares:
    """`Shares` of scores (..., T, T), by least squares; constant rows have shares of 0."""
    tokens = scores.size(-1)
    design = _regressors(tokens, causal)
    y = scores.double().flatten(0, -3)[:, design.queries, design.keys].T  # (n, heads)
    sums = y.new_zeros(tokens, y.size(1)).index_add(0, design.queries, y)
    y = y - (sums / design.visible_keys.unsqueeze(1))[design.queries]
    total = y.square().sum(0)
    # float32's rounding error, left when row means are taken off, is not variance
    noise = (1e-5 * scores.double().abs().amax(dim=(-2, -1))).flatten().square() * len(y)
    products = y.new_zeros(3 * tokens + 1, y.size(1))  # R^T y, which is X^T y: y has no row means
    for columns in design.columns:
        products.index_add_(0, columns, y)

    def explained(part: slice, inverse: Tensor) -> Tensor:
        share = (products[part] * (inverse @ products[part])).sum(0) / total.clamp(min=1e-300)
        return torch.where(total > noise, share.clamp(0, 1), 0.0).reshape(scores.shape[:-2]).float()

    return Shares(*(explained(part, inverse) for part, inverse in design.inverses))


@dataclass(frozen=True)
class _Regressors:
    """Design matrix R of ones and zeros, (n, 3 T + 1), in the least squares of `shares`.

    It has a column for each offset, for the first token as a key, for each key of the first token,
    and one for nothing.

    Attributes:
        queries, keys: (n,), the pairs that count
        visible_keys: (T,), number of keys that a query sees
        columns: (n,) three times, where R's row has its ones
        inverses: for `Shares` in their order, those of R's columns that explain, and for X, which
            is R less its means over the keys of each query, the pseudo-inverse of X^T X
    """

    queries: Tensor
    keys: Tensor
    visible_keys: Tensor
    columns: tuple[Tensor, Tensor, Tensor]
    inverses: list[tuple[slice, Tensor]]


@cache
def _regressors(tokens: int, causal: bool) -> _Regressors:
    offsets = distances(tokens, tokens)
    sees = offsets <= 0 if causal else torch.ones_like(offsets, dtype=torch.bool)
    queries, keys = sees.nonzero().T  # (n,) each
    visible_keys = sees.sum(1)
    first = 2 * tokens - 1
    nothing = first + 1 + tokens
    columns = (
        keys - queries + tokens - 1,
        torch.where(keys == 0, first, nothing),
        torch.where(queries == 0, first + 1 + keys, nothing),
    )
    unit = torch.ones((), dtype=torch.float64)
    sums = torch.zeros(tokens, nothing + 1, dtype=torch.float64)  # of R's rows, by query
    products = torch.zeros(nothing + 1, nothing + 1, dtype=torch.float64)  # R^T R
    for rows in columns:
        sums.index_put_((queries, rows), unit, accumulate=True)
        for others in columns:
            products.index_put_((rows, others), unit, accumulate=True)
    products -= sums.T @ (sums / visible_keys.unsqueeze(1))
    inverses = [
        (part, torch.linalg.pinv(products[part, part], rtol=1e-10, hermitian=True))
        for part in (slice(first), slice(first, nothing), slice(nothing))
    ]
    return _Regressors(queries, keys, visible_keys, columns, inverses)


def name(weights: Tensor, causal: bool = False) -> str:
    """A head's kind, from the weights (T, T) that positions alone would give.

    "first token" where that gets `FIRST_SHARE`; the offset that gets most, where it gets
    `OFFSET_SHARE`; "local" where the mean distance is below `LOCAL` times that of equal weights;
    else "global". Both shares count only where they are twice those of equal weights.
    """
    even = attention(torch.zeros_like(weights), causal)
    first = float(first_share(weights))
    if first >= max(FIRST_SHARE, 2 * float(first_share(even))):
        return "first token"
    by_offset, even_by_offset = mean_of_offset(weights), mean_of_offset(even)
    tokens = weights.size(-1)
    middle = slice(tokens // 2, tokens // 2 + tokens)  # offsets that half of the queries have
    best = int(by_offset[middle].argmax()) + middle.start
    if by_offset[best] >= max(OFFSET_SHARE, 2 * float(even_by_offset[best])):
        offset = best - tokens + 1
        side = "before" if offset < 0 else "after"
        return NAMES.get(offset, f"{abs(offset)} tokens {side}")
    if mean_distance(weights) < LOCAL * mean_distance(even):
        return "local"
    return "global"


def singular_values(matrices: Tensor) -> Tensor:
    """(..., Tq, Tk) -> (..., min(Tq, Tk)), descending, in float64."""
    return torch.linalg.svdvals(matrices.double())


def effective_rank(singular: Tensor) -> Tensor:
    """exp of the entropy of singular values' shares, Roy & Vetterli (2007): (..., r) -> (...).

    r where r values are equal and the others 0; 0 for a matrix of zeros.
    """
    singular = singular.double()
    total = singular.sum(-1, keepdim=True)
    share = singular / total.clamp(min=1e-300)
    return torch.special.entr(share).sum(-1).exp() * (total.squeeze(-1) > 0)


def rank(singular: Tensor, tolerance: float = 1e-5) -> Tensor:
    """Number of singular values above ``tolerance`` times the largest: (..., r) -> (...)."""
    return (singular > tolerance * singular.amax(-1, keepdim=True)).sum(-1)


def theorem_1(tokens: int, head_dim: int, position_rank: int | None = None) -> int:
    """The largest rank of a head's T x T scores, DIET, theorem 1.

    With positions at the input alone it is d_h. A score of positions of rank d_p that is added in
    the head makes it d_h + d_p.

    Args:
        position_rank: d_p; None: positions act at the input alone
    """
    return min(tokens, head_dim + (position_rank or 0))


def cosines(vectors: Tensor) -> Tensor:
    """(T, d) -> (T, T): the cosine similarity of all pairs."""
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    return unit @ unit.T


def pairs(matrix: Tensor) -> Tensor:
    """(T, T) -> (T (T - 1) / 2,): the values above the diagonal, one for each pair."""
    return matrix[torch.ones_like(matrix, dtype=torch.bool).triu(1)]
