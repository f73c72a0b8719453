"""The backend that ``--attention-backend auto`` chooses."""

import torch

from ..context import Schemes, unfused


def quickest(
    schemes: Schemes,
    queries: int,
    keys: int,
    dropout: float,
    device: torch.device,
    dtype: torch.dtype,
) -> str:
    """What "auto" takes where it measures nothing, by measurements on CPUs (docs/performance.md).

    There PyTorch's fused attention is quicker for many keys, but has neither dropout nor a gradient
    for a score that is added: it then falls back to something slower than the plain equation.
    Factors have a gradient, but make vectors longer. The fused backward pass in bfloat16 is slow.
    """
    if dropout or device.type != "cpu" or unfused(schemes):
        return "reference"
    inference = not torch.is_grad_enabled()
    factored = schemes and all(scheme.factored for scheme in schemes)
    # the score of few queries, as in decoding, is small
    if factored and min(queries, keys) >= (2048 if inference else 1024):
        return "factors"
    if inference or all(scheme.shifting for scheme in schemes):  # nothing is added to the score
        enough = 128 if inference or dtype is not torch.bfloat16 else 512
        return "sdpa" if keys >= enough else "reference"
    return "reference"
