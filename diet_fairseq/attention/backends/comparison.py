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
from .offsets import has_far_tiles, is_even
from .reference import reference

logger = logging.getLogger(__name__)

#: largest error by half precision and TF32, relative to a result's norm; a fault's is larger
ROUNDING = 0.05
#: kinds of calls, and whether the backend's results were the reference's
compared: dict[tuple[Any, ...], bool] = {}


def is_trusted(name: str, backend: Backend, request: Request) -> bool:
    """Whether the backend equals the reference, by a comparison at the first call of each kind.

    Under torch.compile, CUDA graphs and fake tensors no comparison can run: a kind that was not
    compared before is not trusted there.
    """
    kind = kind_of(name, request)
    if kind not in compared and can_run(request):
        try:
            # activation checkpointing counts the tensors that a layer saves
            with saved_tensors_hooks(lambda x: x, lambda x: x):
                compared[kind] = matches_reference(backend, request)
        except Exception as error:  # too little memory, or a kernel that doesn't compile
            logger.warning(f"attention by {name} can't run here, sdpa is taken: {error}")
            compared[kind] = False
        else:
            if not compared[kind]:
                logger.warning(f"attention by {name} is wrong here, please report: {kind}")
    return compared.get(kind, False)


def kind_of(name: str, request: Request) -> tuple[Any, ...]:
    """The properties of a call that kernels are compiled for, lengths aside."""
    layout, schemes = request.layout, request.schemes
    reach = max((getattr(scheme, "outermost", 0) for scheme in schemes), default=0)
    learned = any(p.requires_grad for scheme in schemes for p in scheme.parameters())
    return (
        *(name, tuple(type(scheme).__name__ for scheme in schemes), request.shape[2], learned),
        *(request.dtype, request.device, request.training, request.dropout > 0),
        *(layout.causal, layout.padding_mask is not None),
        has_far_tiles(reach, request.queries, request.keys),
        is_even(request.queries, request.keys),
    )


def can_run(request: Request) -> bool:
    if torch.compiler.is_compiling() or type(request.layout.key_positions) is not Tensor:
        return False
    return not (request.device.type == "cuda" and torch.cuda.is_current_stream_capturing())


def matches_reference(backend: Backend, request: Request) -> bool:
    """Whether output and gradients are the reference's for one sentence of random numbers."""
    layout = request.layout
    padding = layout.padding_mask
    single = replace(
        request,
        layout=replace(
            layout,
            query_positions=layout.query_positions[:1],
            key_positions=layout.key_positions[:1],
            padding_mask=None if padding is None else padding[:1],
        ),
        shape=(1, *request.shape[1:]),
        dropout=0.0,
    )
    results, expected = (run(side, single) for side in (backend, Backend(reference, KINDS)))
    norms = [result.float().norm() for result in expected]
    return all(
        # entries of the smallest gradients may cancel
        (a.float() - b.float()).norm() <= ROUNDING * torch.maximum(norm, max(norms) / 10)
        for a, b, norm in zip(results, expected, norms, strict=True)
    )


def run(backend: Backend, request: Request) -> list[Tensor]:
    """The output for random inputs and, in training, the gradients of q, k, v and parameters."""
    devices = [request.device] if request.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(1)
        batch, heads, width = request.shape
        layout, schemes = request.layout, request.schemes
        if any(scheme.compressed for scheme in schemes):
            layout = layout.compressed(request.keys)
        q, k, v, gradient = (
            torch.randn(batch, tokens, heads, width, dtype=request.dtype, device=request.device)
            .transpose(1, 2)  # (B, H, T, d_h) each, as attention has them
            .mul_(width**-0.5)
            .requires_grad_(request.training)
            for tokens in (request.queries, request.keys, request.keys, request.queries)
        )
        scores = scores_of(schemes, layout, backend.reads)
        q_k = transformed(schemes, q, k, layout)
        out, _ = backend(AttentionCall(*q_k, v, scores, schemes, layout, request.dropout))
        if not request.training:
            return [out]
        leaves = [p for scheme in schemes for p in scheme.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(
            out, [q, k, v, *leaves], gradient.detach(), allow_unused=True
        )
        return [out.detach(), *(grad for grad in gradients if grad is not None)]
