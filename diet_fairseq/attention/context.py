"""What attention needs besides its input: the schemes, their term, and how they are passed on."""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from ..positions import PositionScheme
from ..positions.base import product
from ..positions.layout import Layout, toeplitz
from .packing import Packing

#: what acts in one attention call, side by side: the position scheme, the segments' scores
Schemes = tuple[PositionScheme, ...]
Factors = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Term:
    """What schemes add whatever the input is.

    Attributes:
        score: added to the content score
        factors: pairs whose products are added to it
        shifts: pairs that are added to queries and keys
        line: the arguments of a `toeplitz` matrix that is added to the score
    """

    score: Tensor | None = None
    factors: tuple[Factors, ...] = ()
    shifts: tuple[Factors, ...] = ()
    line: tuple[Tensor, int] | None = None

    @staticmethod
    def of(schemes: Schemes, layout: Layout, backend: str = "") -> "Term":
        """The sum of the schemes' terms, in the form that the backend reads.

        For "factors" products stay factors, for "offsets" a score of offsets stays one line.
        """
        scores, factors, shifts, lines = [], [], [], []
        for scheme in schemes:
            # holes make offsets differ between sentences
            reads_line = backend == "offsets" and not layout.has_holes
            line = scheme.line(layout) if reads_line else None
            term = scheme.term(layout, backend == "factors") if line is None else None
            if line is not None:
                lines.append(line)
            elif isinstance(term, tuple):
                factors.append(term)
            elif term is not None:
                scores.append(term)
            shift = scheme.shifts(layout)
            if shift is not None:
                shifts.append(shift)
        score = reduce(torch.add, scores) if scores else None
        rows = layout.query_positions.size(1)
        summed = (reduce(torch.add, lines), rows) if lines else None
        return Term(score, tuple(factors), tuple(shifts), summed)

    def shifted(self, q: Tensor, k: Tensor) -> Factors:
        """Queries (B, H, Tq, d_h), scaled, and keys (B, H, Tk, d_h), with the shifts added."""
        for query, key in self.shifts:
            q, k = q + query.to(q.dtype), k + key.to(k.dtype)
        return q, k

    def dense(self) -> Tensor | None:
        """(B|1, H|1, Tq, Tk), or None where there is nothing to add."""
        scores = [product(query, key) for query, key in self.factors]
        scores += [] if self.score is None else [self.score]
        scores += [] if self.line is None else [toeplitz(*self.line).unsqueeze(0)]
        return reduce(torch.add, scores) if scores else None


@dataclass(frozen=True, eq=False)
class Context:
    """What attention must know besides its input; the layers pass it on as an argument.

    Attributes:
        layout: where queries and keys stand
        shared: the schemes that all layers share; empty where every layer has its own
        term: their term, computed once for all layers; None where every layer has its own
        backend: the key of `BACKENDS` that the term was computed for, and that all layers use
        compress: what compresses the keys and values of all layers, if they share it
        packing: how the tokens that layers get are packed; None: they are not packed
    """

    layout: Layout
    shared: Schemes = ()
    term: Term | None = None
    backend: str = "reference"
    compress: nn.Module | None = None
    packing: Packing | None = None


def score_terms(schemes: Schemes) -> int:
    """How many terms share the scale of the content score where these schemes act."""
    return max((scheme.score_terms for scheme in schemes), default=1)


def query_scale(schemes: Schemes, head_dim: int) -> float:
    """The factor of queries where these schemes act: (score_terms d_h)^-1/2."""
    return (score_terms(schemes) * head_dim) ** -0.5


def unfused(schemes: Schemes) -> bool:
    """Whether one of the schemes needs the reference backend."""
    return any(scheme.reads_queries or scheme.adds_to_values for scheme in schemes)


def present(*schemes: PositionScheme | None) -> Schemes:
    """The schemes that are not None."""
    return tuple(scheme for scheme in schemes if scheme is not None)
