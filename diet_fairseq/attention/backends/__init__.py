"""Ways to compute attention: one a file, each given an `AttentionCall`."""

from .call import AttentionCall, Backend, Request, keys_of
from .choice import quickest
from .fused import factors, sdpa
from .offsets import offsets
from .recomputed import recomputed
from .reference import reference

#: ``--attention-backend``
BACKENDS: dict[str, Backend] = {
    "reference": reference,
    "sdpa": sdpa,
    "factors": factors,
    "recompute": recomputed,
    "offsets": offsets,
}


def select_backend(setting: str, request: Request) -> str:
    """The key of `BACKENDS` for a call, given ``--attention-backend``."""
    return setting if setting in BACKENDS else quickest(request)


__all__ = [
    "BACKENDS",
    "AttentionCall",
    "Backend",
    "Request",
    "keys_of",
    "quickest",
    "select_backend",
]
