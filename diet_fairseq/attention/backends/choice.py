"""The table of backends, and the choice of ``--attention-backend auto``."""

import torch

from ...positions.base import KINDS
from ...positions.layout import Layout
from ...positions.scores import Factors, Offsets
from ..terms import find_moving_scheme, term_kinds
from .banded import band_fits, banded, is_narrow
from .call import Backend, CallShape, has_triton, kernels_fit
from .comparison import is_trusted
from .cudnn import cudnn, cudnn_fits, factors_fit
from .fused import factors, sdpa
from .offsets import NATIVE, offsets
from .reference import reference

#: terms that fused attention can't compute, because its only inputs are q, k, v and a mask
UNFUSED = frozenset({"value_rows", "content_score"})

#: ``--attention-backend``
BACKENDS = {
    "reference": Backend(reference, serves=KINDS, has_equal_widths=False),
    "sdpa": Backend(sdpa, serves=KINDS - UNFUSED),
    "factors": Backend(factors, serves=KINDS - UNFUSED, native_score=Factors),
    "offsets": Backend(offsets, serves=KINDS - UNFUSED, native_score=NATIVE),
    "cudnn": Backend(cudnn, serves=KINDS - UNFUSED, native_score=Factors),
    "banded": Backend(banded, serves=KINDS - UNFUSED, native_score=(Offsets, Factors)),
}


def find_backend(setting: str | Backend) -> Backend:
    """The backend with this key of `BACKENDS`; a `Backend` is returned unchanged."""
    return setting if isinstance(setting, Backend) else BACKENDS[setting]


def select_backend(setting: str | Backend, call: CallShape) -> str | Backend:
    """The backend for a call: the setting, or the choice of "auto" if it can't compute the call.

    Args:
        setting: the value of ``--attention-backend``, or a backend that is not in the table
        call: the shape of the call
    """
    if setting != "auto" and term_kinds(call.schemes) <= find_backend(setting).serves:
        return setting
    return choose_backend(call)


def list_candidates(call: CallShape) -> list[str]:
    """Backends that can compute the call, without duplicates."""
    kinds, layout = term_kinds(call.schemes), call.layout
    # moved positions differ between sentences, and are not known before the layer's input
    moves = find_moving_scheme(call.schemes) is not None
    score_kinds = frozenset({"offsets", "factors", "sum", "dense"})
    has_shared_score = (
        kinds <= score_kinds | {"transform"}
        and bool(kinds & score_kinds)
        and len(layout.key_positions) == 1
        and layout.segments is None
        and not moves
        and cudnn_fits(layout, call.dtype, call.device, call.head_dim, call.dropout)
        and call.keys == call.queries
        and has_triton()
    )
    conditions = {
        "factors": kinds <= {"factors", "transform"} and "factors" in kinds,
        "offsets": has_kernels(call),
        "cudnn": has_shared_score,
        "banded": kinds <= {"offsets", "factors", "transform"} and band_fits(layout),
    }
    return [
        name
        for name, backend in BACKENDS.items()
        if kinds <= backend.serves and conditions.get(name, True)
    ]


def has_kernels(call: CallShape) -> bool:
    """Whether the kernels of "offsets" compute the call."""
    kinds, layout, schemes = term_kinds(call.schemes), call.layout, call.schemes
    scores = kinds & {"offsets", "factors", "sum", "query_rows"}
    has_table = "query_rows" in kinds
    return (
        kinds <= scores | {"transform"}
        and len(scores) == (0 if layout.window is not None and not scores else 1)
        and sum(bool(scheme.kinds & scores) for scheme in schemes) <= 1
        and not any(scheme.compressed for scheme in schemes)
        and find_moving_scheme(schemes) is None
        and (not has_table or all(scheme.has_offset_rows for scheme in schemes))
        and (layout.is_toeplitz or (scores == {"factors"} and layout.window is None))
        and kernels_fit(call.device, call.dtype, call.head_dim, call.rank, has_table)
        and has_triton()
    )


def choose_backend(call: CallShape) -> str:
    """The key of `BACKENDS` that "auto" chooses, by timings on CPUs, an H100 and an H200.

    docs/performance.md has the timings. On a GPU "offsets" and "cudnn" are chosen only if their
    results equal the reference's (`is_trusted`).
    """
    names = list_candidates(call)
    if names == ["reference"]:
        return "reference"
    if call.device.type == "cuda":
        return choose_on_gpu(call, names)
    return choose_on_cpu(call, names) if call.device.type == "cpu" else "reference"


def choose_on_gpu(call: CallShape, names: list[str]) -> str:
    has_narrow_factors = factors_fit(call.head_dim, call.rank)
    min_length = 2048 if not call.training else 512 if has_narrow_factors else 1024
    is_long = "factors" in names and min(call.queries, call.keys) >= min_length
    kernels = ["offsets", "cudnn"]
    if "factors" in names:
        # without a mask PyTorch's kernels need as many products as the kernels of "offsets"
        kernels = ["cudnn"] * (has_narrow_factors or not is_long)
        kernels += ["offsets"] * (is_masked(call.layout) or not is_long)
    elif call.rank and call.keys < 1024:  # a score as a matrix costs less than further columns
        kernels = ["cudnn", "offsets"]
    kernels = [name for name in kernels if name in names]
    trusted = (name for name in kernels if is_trusted(name, BACKENDS[name], call))
    return next(trusted, "factors" if is_long else "sdpa")


def is_masked(layout: Layout) -> bool:
    """Whether a query may not see every key."""
    has_future = layout.causal and layout.query_positions.size(1) > 1
    return has_future or layout.padding_mask is not None or layout.window is not None


def choose_on_cpu(call: CallShape, names: list[str]) -> str:
    """PyTorch's fused attention or the reference, which is quicker in most training.

    With a window, blocks are quicker than both if they read at most half of the keys.

    Fused attention is quicker for many keys, but supports neither dropout nor a gradient for an
    added score: PyTorch then uses a path slower than the plain equation. Factors have a gradient,
    but make vectors longer. The fused backward pass in bfloat16 is slow.
    """
    inference = not call.training
    if "banded" in names and is_narrow(call.layout):
        return "banded"
    if call.dropout:
        return "reference"
    # the score of few queries, as in decoding, is small
    min_length = 2048 if inference else 1024
    if "factors" in names and min(call.queries, call.keys) >= min_length:
        return "factors"
    if inference or term_kinds(call.schemes) <= {"transform"}:  # nothing is added to the score
        min_keys = 128 if inference or call.dtype is not torch.bfloat16 else 512
        return "sdpa" if call.keys >= min_keys else "reference"
    return "reference"
