"""Attention backends beside the reference, in calls with random inputs: for timings and tests."""

from dataclasses import replace
from importlib.util import find_spec

import torch
from torch import Tensor

from diet_fairseq.attention.backends import BACKENDS, AttentionCall, Backend, Request
from diet_fairseq.attention.backends.call import kernels_fit
from diet_fairseq.attention.context import kinds_of, scores_of, transformed

#: largest error by half precision and TF32, relative to a result's norm; a fault's is larger
ROUNDING = 0.05


def candidates(request: Request) -> list[str]:
    """The backends that can compute a call; one that would do the same as another is left out."""
    kinds = kinds_of(request.schemes)
    differs = {
        "factors": kinds <= {"factors", "transform"} and "factors" in kinds,
        "offsets": kinds <= {"offsets", "transform"}
        and "offsets" in kinds
        and request.layout.regular
        and kernels_fit(request.device, request.dtype, request.shape[2])
        and find_spec("triton") is not None,
    }
    return [
        name
        for name, backend in BACKENDS.items()
        if kinds <= backend.serves and differs.get(name, True)
    ]


def matches_reference(backend: Backend, request: Request, rounding: float = ROUNDING) -> bool:
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
    results, expected = (run(side, single) for side in (backend, BACKENDS["reference"]))
    norms = [result.float().norm() for result in expected]
    return all(
        # entries of the smallest gradients may cancel
        (a.float() - b.float()).norm() <= rounding * torch.maximum(norm, max(norms) / 10)
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
