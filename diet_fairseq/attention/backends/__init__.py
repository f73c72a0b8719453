"""Ways to compute attention: one a file, each given an `AttentionCall`."""

from .call import AttentionCall, Backend, Request, keys_of
from .choice import quickest
from .flex import flex
from .fused import factors, sdpa
from .measured import choose
from .offsets import offsets
from .recomputed import recomputed
from .reference import reference

#: ``--attention-backend``
BACKENDS: dict[str, Backend] = {
    "reference": reference,
    "sdpa": sdpa,
    "factors": factors,
    "recompute": recomputed,
    "flex": flex,
    "offsets": offsets,
}


def select_backend(setting: str, request: Request) -> str:
    """The key of `BACKENDS` for a call, given ``--attention-backend``."""
    if setting in BACKENDS:
        return setting
    if setting == "auto" and request.device.type == "cpu":
        return quickest(request)
    return choose(request, BACKENDS)


__all__ = [
    "BACKENDS",
    "AttentionCall",
    "Backend",
    "Request",
    "choose",
    "keys_of",
    "quickest",
    "select_backend",
]
