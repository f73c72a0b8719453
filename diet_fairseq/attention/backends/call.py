"""The attention call that a backend computes, and the backend as an entry of a table."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from ...positions.layout import Layout
from ..terms import NativeScore, Schemes, Scores


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One attention call: B sentences, H heads, Tq queries, Tk keys of width d_h.

    Attributes:
        q: (B, H, Tq, d_h), scaled and transformed, which may have widened it
        k: (B, H, Tk, d_h), transformed, as wide as q
        v: (B, H, Tk, d_h), not transformed
        scores: the terms that are added to q k^T, including the products with rows (`row_scores`)
        schemes: the active schemes, which may also change the logits and add to the values
        layout: the positions of queries and keys, and the mask
        dropout: the probability that a weight is dropped
        temperature: the divisor of the logits
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scores: Scores
    schemes: Schemes
    layout: Layout
    dropout: float
    temperature: float = 1.0

    def fold_temperature(self) -> "AttentionCall":
        """The call with its temperature moved into queries and scores."""
        if self.temperature == 1:
            return self
        factor = 1 / self.temperature
        scores = tuple(score.times(factor) for score in self.scores)
        return replace(self, q=self.q * factor, scores=scores, temperature=1.0)


@dataclass(frozen=True, eq=False)
class CallShape:
    """The properties of an `AttentionCall` that decide its backend; it has no tensors yet.

    Attributes:
        schemes: the active schemes
        layout: the positions of queries and keys, and the mask
        shape: B, H, d_h
        dtype: of q, k and v
        dropout: the probability that a weight is dropped
    """

    schemes: Schemes
    layout: Layout
    shape: tuple[int, int, int]
    dtype: torch.dtype
    dropout: float

    @property
    def head_dim(self) -> int:
        """The width of transformed queries and keys."""
        return self.shape[2] * math.prod(scheme.widening for scheme in self.schemes)

    @property
    def device(self) -> torch.device:
        """The device of the layout, and of the tensors of the call."""
        return self.layout.key_positions.device

    @property
    def queries(self) -> int:
        """The number Tq of queries."""
        return self.layout.query_positions.size(1)

    @property
    def keys(self) -> int:
        """The number of keys: all tokens, or the k compressed keys of ``diet_abs_lin``.

        ``linformer`` adds no score, so it is not one of the schemes.
        """
        compressed = (scheme.shape.keys.positions for scheme in self.schemes if scheme.compressed)
        return next(compressed, self.layout.key_positions.size(1))

    @property
    def rank(self) -> int:
        """The rank of the scheme whose score has the type `Factors`; 0: there is none."""
        return max([0, *(scheme.rank for scheme in self.schemes)])

    @property
    def training(self) -> bool:
        """Whether the call needs gradients."""
        return torch.is_grad_enabled()


def kernels_fit(
    device: torch.device, dtype: torch.dtype, width: int, rank: int = 0, has_table: bool = False
) -> bool:
    """Whether our Triton kernels can run on vectors of this type and width.

    Args:
        rank: the number of columns of factors beside the vectors
        has_table: whether each query has scores of offsets (`QueryOffsets`)
    """
    types = {torch.float32, torch.float16, torch.bfloat16}
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    # The interpreter also runs on a CPU; in Triton 3.9 it reads bfloat16 in products as integers.
    if interpreted:
        types.remove(torch.bfloat16)
    # wider vectors don't fit into a program's shared memory or registers; TUPE's factors need up to
    # 80 columns with heads of 64 numbers
    fits = width <= (64 if rank or has_table else 128) and rank <= 80
    return (interpreted or device.type == "cuda") and dtype in types and fits


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


@dataclass(frozen=True)
class Backend:
    """One implementation of attention.

    Attributes:
        compute: computes an `AttentionCall`: the output (B, H, Tq, d_h), and the weights before
            dropout (B, H, Tq, Tk) or None
        serves: the kinds of terms that it can compute, a subset of `positions.base.KINDS`
        native_score: the types of scores that ``compute`` receives unchanged; other scores are
            first summed into one `Dense`
        has_equal_widths: whether ``compute`` needs values that are as wide as queries and keys;
            otherwise they may be narrower (`PositionScheme.widening`)
    """

    compute: Callable[[AttentionCall], tuple[Tensor, Tensor | None]]
    serves: frozenset[str]
    native_score: NativeScore = None
    has_equal_widths: bool = True

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        width = call.v.size(3)
        if call.k.size(3) == width or not self.has_equal_widths:
            return self.compute(call)
        padded = F.pad(call.v, (0, call.k.size(3) - width))
        out, weights = self.compute(replace(call, v=padded))
        return out[..., :width], weights
