"""The backend that ``--attention-backend auto`` chooses."""

import torch

from ..context import unfused
from .call import Request
from .comparison import is_trusted
from .offsets import offsets


def quickest(request: Request) -> str:
    """The key of `BACKENDS` that "auto" takes, by figures of CPUs and an H100.

    They stand in docs/performance.md. "offsets" is chosen on a GPU by what was computed, not
    measured, and only if its results are the reference's (`is_trusted`).
    """
    if unfused(request.schemes):
        return "reference"
    if request.device.type == "cuda":
        return on_a_gpu(request)
    return on_a_cpu(request) if request.device.type == "cpu" else "reference"


def on_a_gpu(request: Request) -> str:
    candidates, shorter = request.candidates, min(request.queries, request.keys)
    if "factors" in candidates and shorter >= (512 if request.training else 2048):
        return "factors"
    # dropout draws a number for every score, which costs more than the rest of the kernels
    if "offsets" in candidates and not request.dropout and is_trusted("offsets", offsets, request):
        return "offsets"
    return "sdpa"


def on_a_cpu(request: Request) -> str:
    """PyTorch's fused attention or the reference, which is quicker in most training.

    The fused one is quicker for many keys, but has neither dropout nor a gradient for a score that
    is added: it then falls back to something slower than the plain equation. Factors have a
    gradient, but make vectors longer. The fused backward pass in bfloat16 is slow.
    """
    schemes, inference = request.schemes, not request.training
    if request.dropout:
        return "reference"
    factored = schemes and all(scheme.factored for scheme in schemes)
    # the score of few queries, as in decoding, is small
    if factored and min(request.queries, request.keys) >= (2048 if inference else 1024):
        return "factors"
    if inference or all(scheme.shifting for scheme in schemes):  # nothing is added to the score
        enough = 128 if inference or request.dtype is not torch.bfloat16 else 512
        return "sdpa" if request.keys >= enough else "reference"
    return "reference"
