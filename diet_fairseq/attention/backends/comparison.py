"""The comparison of a backend with the reference, on the user's own device."""

import logging
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ...positions.base import KINDS
from ..context import scores_of, transformed
from .call import AttentionCall, Backend, Request
from .offsets import has_far_tiles, is_even, is_recorded
from .reference import reference

logger = logging.getLogger(__name__)

#: error tolerance relative to the norm: above rounding in half precision and TF32, below a defect
ROUNDING = 0.05
#: kinds of calls, and whether the backend's results equalled the reference's
comparisons: dict[tuple[Any, ...], bool] = {}


def is_trusted(name: str, backend: Backend, request: Request) -> bool:
    """Whether the backend equals the reference, by a comparison at the first call of each kind.

    No comparison can run under torch.compile, CUDA graphs and fake tensors: a kind that was not
    compared before is not trusted there.
    """
    kind = describe_kind(name, request)
    if kind not in comparisons and can_compare(request):
        comparisons[kind] = False
        try:
            # hide the comparison's tensors from activation checkpointing, which counts a layer's
            with saved_tensors_hooks(unchanged, unchanged):
                comparisons[kind] = matches_reference(backend, request)
            problem = f"its results are wrong on this device, please report {kind}"
        except Exception as error:  # too little memory, or a kernel that doesn't compile
            problem = f"it fails on this device: {error}"
        if not comparisons[kind]:
            logger.warning(f"--attention-backend auto uses sdpa, not {name}: {problem}")
    return comparisons.get(kind, False)


def unchanged(saved: Tensor) -> Tensor:
    return saved


def describe_kind(name: str, request: Request) -> tuple[Any, ...]:
    """The properties of a call that kernels are compiled for, lengths aside."""
    layout, schemes = request.layout, request.schemes
    queries, keys = request.queries, request.keys
    reach = max([0, *(getattr(scheme, "outermost", 0) for scheme in schemes)])
    is_learned = any(p.requires_grad for scheme in schemes for p in scheme.parameters())
    names = name, *(type(scheme).__name__ for scheme in schemes)
    vectors = request.shape[2], request.dtype, request.device, request.dropout > 0
    gradients = request.training, is_learned
    masks = layout.causal, layout.padding_mask is not None
    tiles = has_far_tiles(reach, queries, keys), is_even(queries, keys)
    return names, vectors, gradients, masks, tiles


def can_compare(request: Request) -> bool:
    if is_recorded(request.layout.key_positions):
        return False
    return request.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def matches_reference(backend: Backend, request: Request) -> bool:
    """Whether output and gradients equal the reference's for one sentence of random numbers."""
    layout = request.layout
    padding = layout.padding_mask
    first = replace(
        layout,
        query_positions=layout.query_positions[:1],
        key_positions=layout.key_positions[:1],
        padding_mask=None if padding is None else padding[:1],
    )
    request = replace(request, layout=first, shape=(1, *request.shape[1:]), dropout=0.0)
    results = [x.float() for x in compute_results(backend, request)]
    expected = [x.float() for x in compute_results(Backend(reference, KINDS), request)]
    smallest = max(y.norm() for y in expected) / 10  # entries of smaller gradients may cancel
    return all(
        (x - y).norm() <= ROUNDING * max(y.norm(), smallest)
        for x, y in zip(results, expected, strict=True)
    )


def compute_results(backend: Backend, request: Request) -> list[Tensor]:
    """The output for random inputs and, in training, the gradients of q, k, v and parameters."""
    layout, schemes, (batch, heads, width) = request.layout, request.schemes, request.shape
    device = request.device
    generator = torch.Generator(device).manual_seed(1)

    def draw(tokens: int) -> Tensor:
        """(B, H, T, d_h), in memory (B, T, H, d_h) as in a layer."""
        shape = batch, tokens, heads, width
        x = torch.randn(shape, dtype=request.dtype, device=device, generator=generator)
        return x.transpose(1, 2) * width**-0.5

    q, k, v = draw(request.queries), draw(request.keys), draw(request.keys)
    inputs = [x.requires_grad_(request.training) for x in (q, k, v)]
    scores = scores_of(schemes, layout, backend.reads)
    q_k = transformed(schemes, q, k, layout)
    out, _ = backend(AttentionCall(*q_k, v, scores, schemes, layout, request.dropout))
    if not request.training:
        return [out]
    inputs += [p for scheme in schemes for p in scheme.parameters() if p.requires_grad]
    gradient = draw(request.queries)
    return [out.detach(), *torch.autograd.grad(out, inputs, gradient, materialize_grads=True)]
