"""The results of a scheme's methods: scores of positions, and rows that are selected by offset."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layout import Layout

# Notation: B sentences, H heads, Tq queries, Tk keys, d_h width of a head; "B|1": B, or 1 if all
# sentences have equal values; "H|1": H, or 1 if all heads have equal values.


class Score:
    """A score that depends only on positions; it is added to q k^T unscaled."""

    def dense(self, layout: Layout) -> Tensor:
        """The score as a matrix.

        Args:
            layout: the layout for which `PositionScheme.score` computed the score

        Returns:
            (B|1, H|1, Tq, Tk), float32
        """
        raise NotImplementedError

    def times(self, factor: float) -> "Score":
        """The score multiplied by a number."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Offsets(Score):
    """A score that depends only on the offset j - i, which our kernels read from one vector.

    Attributes:
        line: (H|1, number of offsets), float32: the score of each offset of `Layout.offset_line`
        reach: the distance from which all scores in one direction are equal; None: there is no
            such distance
    """

    line: Tensor
    reach: int | None = field(default=None, kw_only=True)

    def dense(self, layout: Layout) -> Tensor:
        """(B|1, H|1, Tq, Tk): each pair of a query and a key has the score of its offset."""
        return layout.expand_offsets(self.line)

    def times(self, factor: float) -> "Offsets":
        """The line multiplied by a number."""
        return replace(self, line=self.line * factor)


@dataclass(frozen=True, eq=False)
class Factors(Score):
    """A score of low rank r, query key^T.

    A backend can append the factors to q and k, so that no matrix of scores is built.

    Attributes:
        query: (B|1, H|1, Tq, r)
        key: (B|1, H|1, Tk, r)
    """

    query: Tensor
    key: Tensor

    @property
    def rank(self) -> int:
        """The rank r."""
        return self.query.size(-1)

    def dense(self, layout: Layout) -> Tensor:
        """(B|1, H|1, Tq, Tk), float32: the product of the factors."""
        return product(self.query, self.key)

    def times(self, factor: float) -> "Factors":
        """The score with its query factor multiplied by a number."""
        return replace(self, query=self.query * factor)

    def columns(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Columns for queries and for keys of a type, whose product is the score."""
        return self.query.to(dtype), self.key.to(dtype)


@dataclass(frozen=True, eq=False)
class Differences(Factors):
    """The score query_i - key_j, such as the difference of moved positions (`Layout.moved`).

    Its rank is 2. In half precision it has 6 columns, because the two terms may be thousands while
    their difference is small. A backend that adds columns to queries and keys sums in float32, so
    that its error is about 1e-7 of the larger term.

    Attributes:
        query: (B|1, H|1, Tq, 1)
        key: (B|1, H|1, Tk, 1)
    """

    @property
    def rank(self) -> int:
        """2."""
        return 2

    def dense(self, layout: Layout) -> Tensor:
        """(B|1, H|1, Tq, Tk), float32: the differences."""
        return self.query - self.key.mT

    def times(self, factor: float) -> "Differences":
        """The score with both terms multiplied by a number."""
        return Differences(self.query * factor, self.key * factor)

    def columns(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The terms and columns of ones; in half precision the terms are split (`split_for`)."""
        query, key = split_for(dtype, self.query), split_for(dtype, -self.key)
        ones = torch.ones_like(query), torch.ones_like(key)
        return torch.cat([query, ones[0]], -1), torch.cat([ones[1], key], -1)


@dataclass(frozen=True, eq=False)
class QueryOffsets(Score):
    """A score of each query for each offset j - i, such as its product with a vector per offset.

    Attributes:
        rows: (B, H, Tq, R): the scores of the offsets low to low + R - 1, in the queries' type;
            other offsets are clipped
        low: the smallest offset, at most 0; the largest is at least 0
    """

    rows: Tensor
    low: int

    def dense(self, layout: Layout) -> Tensor:
        """(B, H, Tq, Tk): the score of each pair's offset."""
        index = layout.offsets.clamp(self.low, self.low + self.rows.size(3) - 1) - self.low
        # float32, because the gradient of a score sums up to Tk numbers
        return self.rows.float().gather(3, index.unsqueeze(1).expand(*self.rows.shape[:3], -1))

    def times(self, factor: float) -> "QueryOffsets":
        """The rows multiplied by a number."""
        return replace(self, rows=self.rows * factor)


class Sum(Score):
    """A score that is a sum of scores of other types, which some backends read separately."""

    #: the types of the parts
    part_types: ClassVar[tuple[type[Score], ...]] = ()

    def split(self, layout: Layout) -> tuple[Score, ...] | None:
        """The parts, of `part_types`; None: this layout needs the sum as a matrix."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Dense(Score):
    """A score as a matrix.

    Attributes:
        score: (B|1, H|1, Tq, Tk), float32
    """

    score: Tensor

    def dense(self, layout: Layout) -> Tensor:
        """(B|1, H|1, Tq, Tk): the matrix itself."""
        return self.score

    def times(self, factor: float) -> "Dense":
        """The score with its matrix multiplied by a number."""
        return Dense(self.score * factor)


@dataclass(frozen=True, eq=False)
class Rows:
    """A vector for each pair of a query and a key, selected from R rows.

    Attributes:
        rows: (H|1, R, d_h)
        index: (B|1, 1, Tq, Tk) int64, the number of each pair's row
        bias: (H|1, 1, d_h), added to every query before the product, with the scale of the
            queries; None: no bias
        low: the smallest offset, at most 0, if the rows belong to the offsets low to low + R - 1,
            and ``index`` selects the row of the clipped offset j - i; None: otherwise
    """

    rows: Tensor
    index: Tensor
    bias: Tensor | None = None
    low: int | None = None


def product(query: Tensor, key: Tensor) -> Tensor:
    """query key^T: (..., Tq, r) and (..., Tk, r) -> (..., Tq, Tk), in float32, also in autocast."""
    with torch.autocast(query.device.type, enabled=False):
        return query.float() @ key.float().mT


def count_parts(dtype: torch.dtype) -> int:
    """The number of numbers of a type that represent a float32 number exactly as their sum."""
    return 3 if dtype in (torch.float16, torch.bfloat16) else 1


def split_for(dtype: torch.dtype, x: Tensor) -> Tensor:
    """Float32 numbers as sums of numbers of another type, see `count_parts`.

    In half precision the parts are bfloat16 numbers of 8 bits. float16 represents them, too, if
    they are between its smallest number, 6e-8, and its largest, 65,504. The gradient of x is the
    gradient of its first part.

    Returns:
        (..., r) -> (..., parts * r), in the type
    """
    parts = []
    for _ in range(count_parts(dtype) - 1):
        parts.append(x.bfloat16().to(x.dtype))
        x = x - parts[-1]
    return torch.cat([*parts, x], dim=-1).to(dtype)


def join_parts(x: Tensor, width: int) -> Tensor:
    """The inverse of `split_for`: (..., parts * width) -> (..., width), in float32 or wider."""
    return promote_to_float32(x).unflatten(-1, (-1, width)).sum(-2)


def promote_to_float32(parameter: Tensor) -> Tensor:
    """The parameter in float32 or wider, because half precision is too narrow for its gradient."""
    return parameter.to(torch.promote_types(parameter.dtype, torch.float32))


def apply_in_float32(linear: nn.Module, x: Tensor) -> Tensor:
    """A linear map (..., d) -> (..., e), in float32 or wider if it is exactly an `nn.Linear`.

    Other modules, such as quantized linear maps or adapters, are called in their own precision.
    """
    if type(linear) is nn.Linear:
        weight = promote_to_float32(linear.weight)
        return F.linear(x.to(weight.dtype), weight)
    weight = next(linear.parameters(), x)
    return linear(x.to(weight.dtype))


def look_up(rows: Tensor, table: Tensor) -> Tensor:
    """`F.embedding` with the table in float32 or wider: rows (...), table (n, d) -> (..., d).

    The gradient of a row is a sum over thousands of tokens, which half precision would round.
    """
    return F.embedding(rows, promote_to_float32(table))


def look_up_heads(table: Tensor, positions: Tensor, heads: int) -> Tensor:
    """Look up rows of a table, and split them into heads.

    Args:
        table: (n, H * r)
        positions: (B|1, T) int64; positions of padding may exceed the table

    Returns:
        (B|1, H, T, r)
    """
    rows = look_up(positions.clamp(max=table.size(0) - 1), table)  # (B|1, T, H * r)
    return rows.unflatten(-1, (heads, -1)).transpose(1, 2)
