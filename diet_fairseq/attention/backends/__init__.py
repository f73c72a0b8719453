"""Backends of attention, one a file: each computes an `AttentionCall`."""

from .call import AttentionCall, Backend, CallShape
from .choice import BACKENDS, candidates, quickest, select_backend

__all__ = [
    "BACKENDS",
    "AttentionCall",
    "Backend",
    "CallShape",
    "candidates",
    "quickest",
    "select_backend",
]
