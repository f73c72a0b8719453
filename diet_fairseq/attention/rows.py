"""Products of queries, keys and weights with `Rows`: one vector for each pair of tokens.

All products with all rows are computed, and one product is selected for each pair of tokens. This
costs far less than a vector for every pair.
"""

import torch
from torch import Tensor

from ..positions.base import Projections
from ..positions.layout import Layout
from ..positions.scores import Dense, QueryOffsets, Rows, Score
from .terms import NativeScore, Schemes, Scores


def row_scores(
    schemes: Schemes,
    q: Tensor,
    k: Tensor,
    layout: Layout,
    project: Projections,
    scale: float,
    native: NativeScore = None,
) -> Scores:
    """The scores that `PositionScheme.query_rows` and `key_rows` add: products with q and k.

    Args:
        schemes: the schemes of the call
        q: (B, H, Tq, d_h), scaled, before `PositionScheme.transform`
        k: (B, H, Tk, d_h), after `PositionScheme.transform`
        layout: the positions of queries and keys
        project: the projections of the layer
        scale: the scale of the queries, which also multiplies the products of keys
        native: see `compute_scores`
    """
    scores: list[Score] = []
    for scheme in schemes:
        if (query_rows := scheme.query_rows(layout, project)) is not None:
            bias = query_rows.bias
            biased = q if bias is None else q + bias.to(q.dtype)
            if is_read_by_offset(query_rows, layout, native):
                products = multiply_rows(biased, query_rows.rows)
                scores.append(QueryOffsets(products, query_rows.low or 0))
            else:
                scores.append(Dense(gather_products(biased, query_rows.rows, query_rows.index)))
        if (key_rows := scheme.key_rows(layout, project)) is not None:
            picks = gather_products(k, key_rows.rows * scale, key_rows.index.mT)  # (B, H, Tk, Tq)
            scores.append(Dense(picks.mT))
    return tuple(scores)


def is_read_by_offset(rows: Rows, layout: Layout, native: NativeScore) -> bool:
    """Whether a backend reads the products of rows by offset, so that no matrix is needed."""
    has_offsets = rows.low is not None and rows.rows.size(1) > 1 and layout.is_toeplitz
    return bool(has_offsets and native and issubclass(QueryOffsets, native))


def multiply_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x rows^T: x (B, H, T, d_h), rows (H|1, R, d_h) -> (B, H, T, R)."""
    # `x @ rows.mT` would copy the rows for every sentence
    return torch.einsum("bhtd,hrd->bhtr", x, rows.to(x.dtype))


def gather_products(x: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """x_i . rows[index_ij]: x (B, H, T, d_h), rows (H|1, R, d_h), index (B|1, 1, T, S).

    Returns:
        (B, H, T, S)
    """
    rows = rows.to(x.dtype)
    if index.size(-1) == 1:  # in decoding each key has one query, and needs only one row
        row_of_x = rows[:, index[:, 0, :, 0]].transpose(0, 1)  # (B|1, H|1, T, d_h)
        return torch.linalg.vecdot(x, row_of_x).unsqueeze(-1)
    products = multiply_rows(x, rows)
    # float32, because the gradient of a product sums up to S numbers
    picks = products.float().gather(-1, index.expand(*x.shape[:2], -1, -1))
    return picks.to(x.dtype)


def value_sums(weights: Tensor, rows: Rows) -> Tensor:
    """The sum over j of weights_ij rows[index_ij]: weights (B, H, Tq, Tk) -> (B, H, Tq, d_h)."""
    shape = (*weights.shape[:3], rows.rows.size(1))
    weight_of_row = weights.new_zeros(shape, dtype=torch.float32).scatter_add(
        -1, rows.index.expand(*weights.shape[:2], -1, -1), weights.float()
    )  # (B, H, Tq, R)
    return weight_of_row.to(weights.dtype) @ rows.rows.to(weights.dtype)
