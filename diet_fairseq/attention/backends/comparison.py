"""The comparison of a backend with the reference, on the user's own device."""

import logging
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.random import fork_rng

from ...positions.base import KINDS, Projections
from ..rows import row_scores
from ..terms import compute_scores, transform_queries_and_keys
from .call import AttentionCall, Backend, CallShape
from .offsets import PARTS, count_parts, is_even, is_recorded
from .reference import reference

logger = logging.getLogger(__name__)

#: error tolerance relative to the norm: above rounding in half precision and TF32, below a defect
ROUNDING = 0.05
#: larger weights are not 0 in half precision
VISIBLE = 1e-6
#: kinds of calls, and whether the backend's results equalled the reference's; written by
#: `is_trusted` alone
comparisons: dict[tuple[Any, ...], bool] = {}


def is_trusted(name: str, backend: Backend, call_shape: CallShape) -> bool:
    """Whether the backend equals the reference, by a comparison at the first call of each kind.

    No comparison can run under torch.compile, CUDA graphs and fake tensors: a kind that was not
    compared before is not trusted there.
    """
    kind = describe_kind(name, call_shape)
    if kind not in comparisons and can_compare(call_shape):
        comparisons[kind] = False
        try:
            # activation checkpointing must not count these tensors among the tensors of a layer
            with saved_tensors_hooks(keep_tensor, keep_tensor):
                comparisons[kind] = matches_reference(backend, call_shape)
            problem = f"its results are wrong on this device, please report {kind}"
        except Exception as error:  # too little memory, or a kernel that doesn't compile
            problem = f"it fails on this device: {error}"
        if not comparisons[kind]:
            logger.warning(f"--attention-backend auto does not use {name}: {problem}")
    return comparisons.get(kind, False)


def refuse_projection(rows: Tensor) -> Tensor:
    """A projection for schemes that project no rows."""
    raise NotImplementedError


def keep_tensor(saved: Tensor) -> Tensor:
    """The tensor itself: a hook that neither packs nor unpacks a saved tensor."""
    return saved


def describe_kind(name: str, call_shape: CallShape) -> tuple[Any, ...]:
    """The properties of a call, except lengths, that determine the compiled kernels."""
    layout, schemes = call_shape.layout, call_shape.schemes
    is_learned = any(p.requires_grad for scheme in schemes for p in scheme.parameters())
    names = name, call_shape.rank, *(type(scheme).__name__ for scheme in schemes)
    vectors = call_shape.shape[2], call_shape.dtype, call_shape.device, call_shape.dropout > 0
    gradients = call_shape.training, is_learned
    masks = layout.causal, layout.padding_mask is not None, layout.window is not None
    return names, vectors, gradients, masks, is_even(call_shape.queries, call_shape.keys)


def can_compare(call_shape: CallShape) -> bool:
    """Whether the backend can run now: not under torch.compile and not in a CUDA graph."""
    if is_recorded(call_shape.layout.key_positions):
        return False
    return call_shape.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def matches_reference(backend: Backend, call_shape: CallShape) -> bool:
    """Whether output and gradients equal the reference's for one sentence of random numbers.

    With dropout, the reference drops the weights that the backend drops (`find_factors`), whose
    share must be right.
    """
    layout = call_shape.layout
    padding = layout.padding_mask
    first = replace(
        layout,
        query_positions=layout.query_positions[:1],
        key_positions=layout.key_positions[:1],
        padding_mask=None if padding is None else padding[:1],
    )
    call_shape = replace(call_shape, layout=first, shape=(1, *call_shape.shape[1:]))
    with repeated_random_numbers(call_shape.device):
        results = [x.float() for x in compute_results(backend, call_shape)]
    expected_backend = Backend(reference, KINDS)
    if call_shape.dropout:
        factors = find_factors(backend, call_shape)
        if factors is None:
            return False
        expected_backend = Backend(partial(attend_with_factors, factors), KINDS)
    expected = [x.float() for x in compute_results(expected_backend, call_shape)]
    smallest = max(y.norm() for y in expected) / 10  # entries of smaller gradients may cancel
    return all(
        (x - y).norm() <= ROUNDING * max(y.norm(), smallest)
        for x, y in zip(results, expected, strict=True)
    )


def compute_results(backend: Backend, call_shape: CallShape) -> list[Tensor]:
    """The output for random inputs and, in training, the gradients of q, k, v and parameters."""
    call, inputs, gradient = create_call(backend, call_shape)
    out, _ = backend(call)
    if not call_shape.training:
        return [out]
    return [out.detach(), *torch.autograd.grad(out, inputs, gradient, materialize_grads=True)]


def create_call(
    backend: Backend, call_shape: CallShape
) -> tuple[AttentionCall, list[Tensor], Tensor]:
    """A call with random numbers, the tensors that need gradients, and the output's gradient."""
    layout, schemes, (batch, heads, width) = call_shape.layout, call_shape.schemes, call_shape.shape
    device = call_shape.device
    generator = torch.Generator(device).manual_seed(1)

    def draw(tokens: int) -> Tensor:
        """(B, H, T, d_h), in memory (B, T, H, d_h) as in a layer."""
        shape = batch, tokens, heads, width
        x = torch.randn(shape, dtype=call_shape.dtype, device=device, generator=generator)
        return x.transpose(1, 2) * width**-0.5

    q, k, v = draw(call_shape.queries), draw(call_shape.keys), draw(call_shape.keys)
    inputs = [x.requires_grad_(call_shape.training) for x in (q, k, v)]
    scores = compute_scores(schemes, layout, backend.native_score)
    # no scheme whose rows are projected has a backend that is compared
    project = Projections(query=refuse_projection, key=refuse_projection)
    scores += row_scores(schemes, q, k, layout, project, 1.0, backend.native_score)
    q_k = transform_queries_and_keys(schemes, q, k, layout)
    call = AttentionCall(*q_k, v, scores, schemes, layout, call_shape.dropout)
    inputs += [p for scheme in schemes for p in scheme.parameters() if p.requires_grad]
    return call, inputs, draw(call_shape.queries)


def repeated_random_numbers(device: torch.device) -> AbstractContextManager[None]:
    """Every call in such a context draws the same numbers, and later code draws them again."""
    return fork_rng([device] if device.type == "cuda" else [])


@torch.no_grad()
def find_factors(backend: Backend, call_shape: CallShape) -> Tensor | None:
    """The factors of the weights, (B, H, Tq, Tk): 0, or 1 / (1 - dropout), as the backend rounds.

    Weights are the outputs for values that are 1 for one key and 0 for others. None: the share of
    zeros is not the probability of dropout.
    """
    call, *_ = create_call(backend, call_shape)
    call_of_reference, *_ = create_call(Backend(reference, KINDS), replace(call_shape, dropout=0.0))
    _, weights = reference(call_of_reference)
    is_kept, is_large = find_kept(backend, call), weights > VISIBLE
    rate = count_parts(call.dropout) / PARTS
    count = int(is_large.sum())
    excess = int((is_kept & is_large).sum()) - (1 - rate) * count
    if abs(excess) > 6 * (rate * (1 - rate) * count) ** 0.5:  # standard deviations
        return None
    return is_kept / (1 - rate)


@torch.no_grad()
def find_kept(backend: Backend, call: AttentionCall) -> Tensor:
    """Which weights a backend keeps, (B, H, Tq, Tk); weights that are 0 count as dropped."""
    batch, heads, keys, width = call.v.shape
    parts = []
    for one_hot in torch.eye(keys, dtype=call.v.dtype, device=call.v.device).split(width, dim=1):
        v = F.pad(one_hot, (0, width - one_hot.size(1))).expand(batch, heads, -1, -1)
        with repeated_random_numbers(call.q.device):
            out, _ = backend(replace(call, v=v))
        parts.append(out[..., : one_hot.size(1)] != 0)
    return torch.cat(parts, dim=-1)


def attend_with_factors(factors: Tensor, call: AttentionCall) -> tuple[Tensor, None]:
    """Attention whose weights are multiplied by factors (B, H, Tq, Tk)."""
    _, weights = reference(replace(call, dropout=0.0))
    return (weights * factors).to(call.v.dtype) @ call.v, None
