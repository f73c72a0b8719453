"""The table of backends, and the one that ``--attention-backend auto`` chooses."""

import torch

from ...positions.base import KINDS
from ...positions.scores import Factors, Offsets
from ..context import kinds_of
from .call import Backend, Request
from .fused import factors, sdpa
from .offsets import offsets
from .reference import reference

#: terms that fused attention can't compute, as it gets q, k, v and a mask
UNFUSED = frozenset({"value_rows", "content_score"})

#: ``--attention-backend``
BACKENDS = {
    "reference": Backend(reference, serves=KINDS),
    "sdpa": Backend(sdpa, serves=KINDS - UNFUSED),
    "factors": Backend(factors, serves=KINDS - UNFUSED, reads=Factors),
    "offsets": Backend(offsets, serves=KINDS - UNFUSED, reads=Offsets),
}


def select_backend(setting: str, request: Request) -> str:
    """The key of `BACKENDS` for a call, given ``--attention-backend``."""
    return setting if setting in BACKENDS else quickest(request)


def quickest(request: Request) -> str:
    """The key of `BACKENDS` that "auto" takes, by figures of CPUs and an H100.

    The figures stand in docs/performance.md. "offsets" is never taken: no GPU has measured it.
    """
    if kinds_of(request.schemes) & UNFUSED:
        return "reference"
    if request.device.type == "cuda":
        return on_a_gpu(request)
    return on_a_cpu(request) if request.device.type == "cpu" else "reference"


def is_factored(request: Request) -> bool:
    """Whether factors are all that is added to the score."""
    kinds = kinds_of(request.schemes)
    return "factors" in kinds and kinds <= {"factors", "transform"}


def on_a_gpu(request: Request) -> str:
    if request.training and kinds_of(request.schemes) & {"query_rows", "key_rows"}:
        return "reference"  # sdpa was not measured
    enough = 512 if request.training else 2048
    is_long = min(request.queries, request.keys) >= enough
    return "factors" if is_long and is_factored(request) else "sdpa"


def on_a_cpu(request: Request) -> str:
    """PyTorch's fused attention or the reference, which is quicker in most training.

    Fused attention is quicker for many keys, but supports neither dropout nor a gradient for an
    added score: PyTorch then takes a path slower than the plain equation. Factors have a gradient,
    but make vectors longer. The fused backward pass in bfloat16 is slow.
    """
    inference = not request.training
    if request.dropout:
        return "reference"
    # the score of few queries, as in decoding, is small
    enough = 2048 if inference else 1024
    if is_factored(request) and min(request.queries, request.keys) >= enough:
        return "factors"
    if inference or kinds_of(request.schemes) <= {"transform"}:  # nothing is added to the score
        enough = 128 if inference or request.dtype is not torch.bfloat16 else 512
        return "sdpa" if request.keys >= enough else "reference"
    return "reference"
