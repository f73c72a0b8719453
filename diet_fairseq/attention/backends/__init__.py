"""Ways to compute attention: one a file, each given an `AttentionCall`."""

from .call import AttentionCall, Backend, Request
from .choice import BACKENDS, candidates, quickest, select_backend

__all__ = [
    "BACKENDS",
    "AttentionCall",
    "Backend",
    "Request",
    "candidates",
    "quickest",
    "select_backend",
]
