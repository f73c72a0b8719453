"""Attention backends, one per file, and the choice of a backend for a call."""

from .call import AttentionCall, Backend, CallShape
from .choice import BACKENDS, choose_backend, find_backend, list_candidates, select_backend

__all__ = [
    "BACKENDS",
    "AttentionCall",
    "Backend",
    "CallShape",
    "choose_backend",
    "find_backend",
    "list_candidates",
    "select_backend",
]
