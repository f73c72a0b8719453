"""The comparison of a backend with the reference, on the user's own device."""

import logging
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ...positions.base import KINDS, Projections
from ..rows import row_scores
from ..terms import compute_scores, transform_queries_and_keys
from .call import AttentionCall, Backend, CallShape
from .offsets import is_even, is_recorded
from .reference import reference

logger = logging.getLogger(__name__)

#: error tolerance relative to the norm: above rounding in half precision and TF32, below a defect
ROUNDING = 0.05
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
    """Whether output and gradients equal the reference's for one sentence of random numbers."""
    layout = call_shape.layout
    padding = layout.padding_mask
    first = replace(
        layout,
        query_positions=layout.query_positions[:1],
        key_positions=layout.key_positions[:1],
        padding_mask=None if padding is None else padding[:1],
    )
    call_shape = replace(call_shape, layout=first, shape=(1, *call_shape.shape[1:]), dropout=0.0)
    results = [x.float() for x in compute_results(backend, call_shape)]
    expected = [x.float() for x in compute_results(Backend(reference, KINDS), call_shape)]
    smallest = max(y.norm() for y in expected) / 10  # entries of smaller gradients may cancel
    return all(
        (x - y).norm() <= ROUNDING * max(y.norm(), smallest)
        for x, y in zip(results, expected, strict=True)
    )


def compute_results(backend: Backend, call_shape: CallShape) -> list[Tensor]:
    """The output for random inputs and, in training, the gradients of q, k, v and parameters."""
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
    out, _ = backend(AttentionCall(*q_k, v, scores, schemes, layout, call_shape.dropout))
    if not call_shape.training:
        return [out]
    inputs += [p for scheme in schemes for p in scheme.parameters() if p.requires_grad]
    gradient = draw(call_shape.queries)
    return [out.detach(), *torch.autograd.grad(out, inputs, gradient, materialize_grads=True)]
