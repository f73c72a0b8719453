"""Ways to compute attention: one a file, each given an `AttentionCall`."""

from .call import AttentionCall, Backend, Request, keys_of
from .choice import quickest
from .fused import fused
from .offsets import offsets
from .recomputed import recomputed
from .reference import reference

#: ``--attention-backend``; "factors" has products appended to q and k, "sdpa" has none
BACKENDS: dict[str, Backend] = {
    "reference": reference,
    "sdpa": fused,
    "factors": fused,
    "recompute": recomputed,
    "offsets": offsets,
}

__all__ = ["BACKENDS", "AttentionCall", "Backend", "Request", "keys_of", "quickest"]
