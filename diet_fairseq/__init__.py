"""Decoupled positional attention (DIET, TUPE and their baselines) for fairseq.

Importing it, as ``--user-dir diet_fairseq`` does, registers everything with fairseq.
"""

from . import models
from .errors import report_user_errors
from .models import diet_transformer

report_user_errors()

__all__ = ["diet_transformer", "models"]
