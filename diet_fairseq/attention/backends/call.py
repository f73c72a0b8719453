"""What every backend is given, and what it returns."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ...positions.layout import Layout
from ..context import Schemes, Term


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One attention call: B sentences, H heads, Tq queries, Tk keys of width d_h.

    Attributes:
        q: (B, H, Tq, d_h), already scaled and shifted
        k: (B, H, Tk, d_h), already shifted; v: likewise, not shifted
        term: what is added to the score whatever the queries are
        schemes: what the term is of; they may also read queries, and add to the values
        layout: where queries and keys stand, and what is masked
        dropout: the probability that a weight is dropped
    """

    q: Tensor
    k: Tensor
    v: Tensor
    term: Term
    schemes: Schemes
    layout: Layout
    dropout: float


class Backend(Protocol):
    """One way of computing attention."""

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        """(B, H, Tq, d_h), and the weights before dropout (B, H, Tq, Tk) if it has them."""
        ...
