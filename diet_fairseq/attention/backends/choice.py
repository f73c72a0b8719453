"""The table of backends, and the one that ``--attention-backend auto`` chooses."""

import torch

from ...positions.base import KINDS
from ...positions.scores import Factors, Offsets
from ..context import kinds_of
from .call import Backend, Request, has_triton, kernels_fit
from .comparison import is_trusted
from .cudnn import cudnn, cudnn_fits
from .fused import factors, sdpa
from .offsets import offsets, offsets_v2
from .reference import reference

#: terms that fused attention can't compute, as it gets q, k, v and a mask
UNFUSED = frozenset({"value_rows", "content_score"})

#: ``--attention-backend``
BACKENDS = {
    "reference": Backend(reference, serves=KINDS),
    "sdpa": Backend(sdpa, serves=KINDS - UNFUSED),
    "factors": Backend(factors, serves=KINDS - UNFUSED, reads=Factors),
    "offsets": Backend(offsets, serves=KINDS - UNFUSED, reads=Offsets),
    "offsets_v2": Backend(offsets_v2, serves=KINDS - UNFUSED, reads=Offsets),
    "cudnn": Backend(cudnn, serves=KINDS - UNFUSED),
}


def select_backend(setting: str, request: Request) -> str:
    """The key of `BACKENDS` for a call: the setting, or "auto"'s if that can't compute the call."""
    backend = BACKENDS.get(setting)
    can_compute = backend is not None and kinds_of(request.schemes) <= backend.serves
    return setting if can_compute else quickest(request)


def candidates(request: Request) -> list[str]:
    """The backends that can compute a call; one that would do the same as another is left out."""
    kinds = kinds_of(request.schemes)
    has_line = (
        kinds <= {"offsets", "transform"}
        and "offsets" in kinds
        and request.layout.regular
        and kernels_fit(request.device, request.dtype, request.shape[2])
        and has_triton()
    )
    layout = request.layout
    added = frozenset({"offsets", "factors", "dense"})
    has_shared_score = (
        kinds <= added | {"transform"}
        and bool(kinds & added)
        and len(layout.key_positions) == 1
        and layout.segments is None
        and cudnn_fits(layout, request.dtype, request.device, request.shape[2], request.dropout)
        and has_triton()
    )
    differs = {
        "factors": kinds <= {"factors", "transform"} and "factors" in kinds,
        "offsets": has_line,
        "offsets_v2": has_line,
        "cudnn": has_shared_score,
    }
    return [
        name
        for name, backend in BACKENDS.items()
        if kinds <= backend.serves and differs.get(name, True)
    ]


def quickest(request: Request) -> str:
    """The key of `BACKENDS` that "auto" takes, by figures of CPUs, an H100 and an H200.

    The figures stand in docs/performance.md. On a GPU "offsets" is chosen only if its results are
    the reference's (`is_trusted`).
    """
    names = candidates(request)
    if names == ["reference"]:
        return "reference"
    if request.device.type == "cuda":
        return on_a_gpu(request, names)
    return on_a_cpu(request, names) if request.device.type == "cpu" else "reference"


def on_a_gpu(request: Request, names: list[str]) -> str:
    # vectors of up to 128 have quicker kernels
    wide = request.shape[2] + max([0, *(scheme.rank for scheme in request.schemes)]) > 128
    enough = 2048 if not request.training else 1024 if wide else 512
    if "factors" in names and min(request.queries, request.keys) >= enough:
        return "factors"
    # dropout draws a number for every score, which costs more than the rest of the kernels
    trusted = "offsets" in names and not request.dropout
    if trusted and is_trusted("offsets", BACKENDS["offsets"], request):
        return "offsets"
    return "sdpa"


def on_a_cpu(request: Request, names: list[str]) -> str:
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
    if "factors" in names and min(request.queries, request.keys) >= enough:
        return "factors"
    if inference or kinds_of(request.schemes) <= {"transform"}:  # nothing is added to the score
        enough = 128 if inference or request.dtype is not torch.bfloat16 else 512
        return "sdpa" if request.keys >= enough else "reference"
    return "reference"
