"""The kernels of the backend "offsets" in Triton's interpreter, against the reference.

`main` runs in a process of its own, as Triton is imported for its interpreter or for a device, and
prints how each check ended.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from diet_fairseq.attention.backends import BACKENDS, AttentionCall
from diet_fairseq.attention.context import Term
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.positions.layout import Layout

# the package has the function under this name
offsets: Any = import_module("diet_fairseq.attention.backends.offsets")
BATCH, HEADS = 2, 2


@dataclass(frozen=True)
class Call:
    """An attention call of sentences with so many tokens, of which the last are queries."""

    scheme: str
    lengths: tuple[int, int]
    causal: bool = False
    left: bool = False
    queries: int | None = None
    width: int = 12
    dtype: torch.dtype = torch.float32
    heads_share: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def results(self, backend: str) -> tuple[Tensor, ...]:
        """What comes out, and the gradients of queries, keys, values and the scheme."""
        keys = max(self.lengths)
        limit = Limit(keys, "--max-positions")
        heads = 1 if self.heads_share else HEADS
        shape = AttentionShape(
            heads, self.width, HEADS * self.width, queries=limit, keys=limit, causal=self.causal
        )
        torch.manual_seed(1)
        options: dict[str, Any] = {"gain": 1.0, **self.options}
        scheme = SCHEMES[self.scheme].create(shape, **options)
        for parameter in scheme.parameters():
            torch.nn.init.normal_(parameter)
        place, lengths = torch.arange(keys), torch.tensor(self.lengths).unsqueeze(1)
        padding = place < keys - lengths if self.left else place >= lengths  # (B, Tk)
        layout = Layout.of_self_attention(padding, self.causal, self.queries)
        q, k, v, gradient = (
            torch.randn(tokens, BATCH, HEADS, self.width, dtype=self.dtype).permute(1, 2, 0, 3)
            for tokens in (self.queries or keys, keys, keys, self.queries or keys)
        )
        leaves = [x.requires_grad_() for x in (q, k, v)]
        term = Term.of((scheme,), layout, backend)
        call = AttentionCall(q * self.width**-0.5, k, v, term, (scheme,), layout, 0.0)
        out, _ = BACKENDS[backend](call)
        return out, *torch.autograd.grad(out, [*leaves, *scheme.parameters()], gradient)


def check(call: Call) -> None:
    launched = []

    def watched(name: str, *given: Any) -> None:
        launched.append(name)
        launch(name, *given)

    launch = offsets.launch
    with patch.object(offsets, "launch", watched):
        found = call.results("offsets")
    assert launched == ["forward", "backward"]
    # half precision is rounded at other places, float32 only summed in another order
    error = 2e-5 if call.dtype == torch.float32 else 1e-2
    for one, other in zip(found, call.results("reference"), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=error, atol=error)


#: a tile is of 16 tokens, in half precision of 64 or 32; one has only padding
CALLS = {
    "an encoder, nothing padded": Call("diet_rel", (9, 9)),
    "buckets, padded on the right": Call("t5", (20, 11), options={"buckets": 8}),
    "a decoder, padded on the left, heads share": Call(
        "diet_rel", (3, 20), causal=True, left=True, heads_share=True
    ),
    "the last queries, clipped offsets": Call(
        "diet_rel", (20, 20), causal=True, queries=5, options={"clip": 3}
    ),
    "one query, padded": Call("t5", (9, 7), causal=True, left=True, queries=1),
    "half precision": Call("diet_rel", (9, 7), dtype=torch.float16),
    "a sentence without tokens": Call("diet_rel", (3, 0)),
}
MORE = {
    f"{scheme}, {width} wide, {dtype}, {'causal, ' if causal else ''}{side}": Call(
        *(scheme, lengths, causal, side == "left", queries, width, dtype)
    )
    for scheme, lengths, width, dtype, causal, side, queries in [
        ("diet_rel", (40, 25), 64, torch.float32, False, "left", None),
        ("t5", (40, 25), 128, torch.float32, True, "right", None),
        ("diet_rel", (70, 45), 64, torch.float16, True, "left", None),
        ("t5", (70, 45), 65, torch.float16, True, "right", 40),
        ("diet_rel", (40, 25), 1, torch.float32, True, "right", 35),
    ]
}


def faulty(change: Callable[..., Any]) -> Callable[..., None]:
    """`launch` with arguments that ``change`` has changed; what it gives back is called after."""
    original = offsets.launch

    def launch(name: str, tokens: int, *given: Any) -> None:
        changed, after = change(name, *given)
        original(name, tokens, *changed)
        after()

    return launch


def a_line_moved_by_one(name: str, inputs: Any, line: Tensor, *rest: Any) -> Any:
    return (inputs, line.roll(1, 1), *rest), lambda: None


def padding_forgotten(name: str, inputs: Any, line: Tensor, padding: Any, *rest: Any) -> Any:
    return (inputs, line, None, *rest), lambda: None


def the_future_forgotten(name: str, *given: Any) -> Any:
    return (*given[:-1], False), lambda: None


def gradients_on_the_next_diagonal(name: str, *given: Any) -> Any:
    def after() -> None:
        if name == "backward":
            given[3][-1].copy_(given[3][-1].roll(1, 1))

    return given, after


SMALL = Call("diet_rel", (6, 4), causal=True, left=True)
MUTANTS = [
    a_line_moved_by_one,
    padding_forgotten,
    the_future_forgotten,
    gradients_on_the_next_diagonal,
]


def caught(mutant: Callable[..., Any]) -> None:
    with patch.object(offsets, "launch", faulty(mutant)):
        try:
            check(SMALL)
        except AssertionError:
            return
    raise AssertionError("not caught")


def opcheck() -> None:
    """What `torch.compile` is told of the operator is true."""
    q, k, v = (torch.randn(1, 2, tokens, 8, requires_grad=True) for tokens in (3, 5, 5))
    padding = torch.tensor([[False, False, False, False, True]])
    given = (q, k, v, torch.randn(2, 7, requires_grad=True), padding, False)
    torch.library.opcheck(offsets.offset_attention, given)


def checks_of(more: bool) -> dict[str, Callable[[], None]]:
    calls = MORE if more else CALLS
    checks: dict[str, Callable[[], None]] = {n: partial(check, calls[n]) for n in calls}
    if more:
        return checks | {"opcheck": opcheck}
    return checks | {mutant.__name__: partial(caught, mutant) for mutant in MUTANTS}


def main() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    for name in [*sys.modules]:  # PyTorch's compiler may have imported it already
        if name.startswith("triton") and not name.startswith("triton._C"):
            del sys.modules[name]
    np.seterr(all="ignore")  # of rows that there are not
    for name, run in checks_of(more="more" in sys.argv).items():
        try:
            run()
            print(f"{name}: passed")
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
