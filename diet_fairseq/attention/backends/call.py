"""What every backend is given, and what it returns."""

import os
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from ...positions.layout import Layout
from ..context import Schemes, Term, unfused


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


@dataclass(frozen=True, eq=False)
class Request:
    """A call to come: B sentences, H heads, Tq queries, Tk keys of width d_h.

    Attributes:
        schemes: what acts in it
        layout: of its queries and keys
        shape: B, H, d_h
        dtype: of q, k and v
        dropout: the probability that a weight is dropped
        layers: how many share what the schemes add
    """

    schemes: Schemes
    layout: Layout
    shape: tuple[int, int, int]
    dtype: torch.dtype
    dropout: float
    layers: int = 1

    @property
    def device(self) -> torch.device:
        return self.layout.key_positions.device

    @property
    def queries(self) -> int:
        return self.layout.query_positions.size(1)

    @property
    def keys(self) -> int:
        return keys_of(self.schemes, self.layout)

    @property
    def inner_layout(self) -> Layout:
        """Of the keys that attention has: compressed ones are no tokens, and none is masked."""
        if self.keys == self.layout.key_positions.size(1):
            return self.layout
        return self.layout.compressed(self.keys)

    @property
    def training(self) -> bool:
        """Whether gradients are wanted."""
        return torch.is_grad_enabled()

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """The backends that can compute it."""
        if unfused(self.schemes):
            return ("reference",)
        names = ["reference", "sdpa"]
        if self.schemes and all(scheme.factored for scheme in self.schemes):
            names.append("factors")
        adds = any(not scheme.shifting for scheme in self.schemes)
        if adds and self.training and not self.dropout and self.device.type == "cpu":
            names.append("recompute")
        lines = self.schemes and all(scheme.of_offsets for scheme in self.schemes)
        lines = lines and not self.layout.has_holes  # where offsets differ between sentences
        if lines and kernels_fit(self.device, self.dtype, self.shape[2]) and has_triton():
            names.append("offsets")
        return tuple(names)


def kernels_fit(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether Triton's kernels for offsets can run on vectors of this type and width."""
    types = {torch.float32, torch.float16, torch.bfloat16}
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if interpreted:  # on a CPU, too; it takes bfloat16's bits for integers in products (3.9)
        types.remove(torch.bfloat16)
    # wider ones don't fit into the memory that a program has
    return (interpreted or device.type == "cuda") and dtype in types and width <= 128


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def keys_of(schemes: Schemes, layout: Layout) -> int:
    """How many keys attention has: tokens, or the k that any number of them is compressed to."""
    compressed = (scheme.shape.keys.positions for scheme in schemes if scheme.compressed)
    return next(compressed, layout.key_positions.size(1))


class Backend(Protocol):
    """One way of computing attention."""

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        """(B, H, Tq, d_h), and the weights before dropout (B, H, Tq, Tk) if it has them."""
        ...
