"""Optimizers and a learning-rate schedule; importing them registers them with fairseq."""

import fairseq  # noqa: F401  # first of all: it imports the plugin

from . import fused_adamw, lamb_torch, linear_ratio

__all__ = ["fused_adamw", "lamb_torch", "linear_ratio"]
