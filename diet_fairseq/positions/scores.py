"""The values that schemes give attention: scores of positions, and rows indexed by offset."""

from dataclasses import InitVar, dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layout import Layout

# Notation: B sentences, H heads, Tq queries, Tk keys, d_h width of a head; "B|1": B, or 1 if equal
# for all sentences; "H|1" likewise.


class Score:
    """A score that does not depend on the tokens' content; it is added to q k^T unscaled."""

    def dense(self, layout: Layout) -> Tensor:
        """(B|1, H|1, Tq, Tk), float32: the score of every pair in the layout it was made for."""
        raise NotImplementedError

    def times(self, factor: float) -> "Score":
        """The score multiplied by a number."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Offsets(Score):
    """A score that depends only on the offset j - i, which fused kernels read as one vector.

    Attributes:
        line: (H|1, number of offsets), float32: the score of each offset of `Layout.offset_line`
        layout: ignored; schemes written for version 0.3 pass it
        reach: the distance from which all scores in a direction are equal; None: scores differ at
            every distance
    """

    line: Tensor
    layout: InitVar[Layout | None] = None
    reach: int | None = None

    def dense(self, layout: Layout) -> Tensor:
        """The line, spread over all pairs of a query and a key."""
        return layout.expand_offsets(self.line)

    def times(self, factor: float) -> "Offsets":
        """The line multiplied by a number."""
        return replace(self, line=self.line * factor)


@dataclass(frozen=True, eq=False)
class Factors(Score):
    """A score of low rank, whose factors attention can append to q and k instead of building it.

    Attributes:
        query: (B|1, H|1, Tq, r)
        key: (B|1, H|1, Tk, r)
    """

    query: Tensor
    key: Tensor

    def dense(self, layout: Layout) -> Tensor:
        """The product of the factors."""
        return product(self.query, self.key)

    def times(self, factor: float) -> "Factors":
        """The query's factor multiplied by a number."""
        return replace(self, query=self.query * factor)


@dataclass(frozen=True, eq=False)
class Dense(Score):
    """A whole matrix of scores: (B|1, H|1, Tq, Tk)."""

    score: Tensor

    def dense(self, layout: Layout) -> Tensor:
        """The score as it is."""
        return self.score

    def times(self, factor: float) -> "Dense":
        """The matrix multiplied by a number."""
        return Dense(self.score * factor)


@dataclass(frozen=True, eq=False)
class Rows:
    """Vectors, one for each pair of a query and a key.

    Attributes:
        rows: (H|1, R, d_h)
        index: (B|1, 1, Tq, Tk) int64, the row of each pair
        bias: (H|1, 1, d_h), added to every query, scaled as queries are; None: no bias
    """

    rows: Tensor
    index: Tensor
    bias: Tensor | None = None


def product(query: Tensor, key: Tensor) -> Tensor:
    """query key^T, (..., Tq, r) and (..., Tk, r) -> (..., Tq, Tk), in float32 despite autocast."""
    with torch.autocast(query.device.type, enabled=False):
        return query.float() @ key.float().mT


def at_least_float32(parameter: Tensor) -> Tensor:
    """The parameter in float32 or wider: its gradient sums more terms than half precision holds."""
    return parameter.to(torch.promote_types(parameter.dtype, torch.float32))


def apply_in_float32(linear: nn.Module, x: Tensor) -> Tensor:
    """A linear map (..., d) -> (..., e), in float32 or wider where its weights are a `nn.Linear`'s.

    Other modules, such as quantized or adapted linear maps, are called unchanged.
    """
    if type(linear) is nn.Linear:
        weight = at_least_float32(linear.weight)
        return F.linear(x.to(weight.dtype), weight)
    weight = next(linear.parameters(), x)
    return linear(x.to(weight.dtype))


def look_up(rows: Tensor, table: Tensor) -> Tensor:
    """`F.embedding`, with a table in half precision cast to float32.

    The gradient of a row sums over thousands of tokens, which half precision would round away.
    """
    return F.embedding(rows, at_least_float32(table))


def take_rows(table: Tensor, positions: Tensor, heads: int) -> Tensor:
    """Rows of a table, split into heads.

    Args:
        table: (n, H * r)
        positions: (B|1, T) int64; positions of padding may exceed the table

    Returns:
        (B|1, H, T, r)
    """
    rows = look_up(positions.clamp(max=table.size(0) - 1), table)  # (B|1, T, H * r)
    return rows.unflatten(-1, (heads, -1)).transpose(1, 2)
