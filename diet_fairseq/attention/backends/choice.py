"""The backend that ``--attention-backend auto`` chooses."""

import torch

from ..context import unfused
from .call import Request


def quickest(request: Request) -> str:
    """What "auto" takes where it measures nothing, by measurements on CPUs (docs/performance.md).

    There PyTorch's fused attention is quicker for many keys, but has neither dropout nor a gradient
    for a score that is added: it then falls back to something slower than the plain equation.
    Factors have a gradient, but make vectors longer. The fused backward pass in bfloat16 is slow.
    """
    schemes, inference = request.schemes, not request.training
    if request.dropout or request.device.type != "cpu" or unfused(schemes):
        return "reference"
    factored = schemes and all(scheme.factored for scheme in schemes)
    # the score of few queries, as in decoding, is small
    if factored and min(request.queries, request.keys) >= (2048 if inference else 1024):
        return "factors"
    if inference or all(scheme.shifting for scheme in schemes):  # nothing is added to the score
        enough = 128 if inference or request.dtype is not torch.bfloat16 else 512
        return "sdpa" if request.keys >= enough else "reference"
    return "reference"
