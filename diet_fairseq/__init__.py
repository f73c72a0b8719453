"""Decoupled positional attention (DIET, TUPE and their baselines) for fairseq.

Importing it, as ``--user-dir diet_fairseq`` does, registers everything with fairseq and makes
fairseq run safely on today's PyTorch: `patches.table` lists what is changed.
"""

from . import criterions, optim, tasks
from .models import diet_bert, diet_electra, diet_roberta, diet_transformer
from .patches.table import PATCHES
from .version import __version__

PATCHES.apply()

__all__ = [
    "__version__",
    "criterions",
    "diet_bert",
    "diet_electra",
    "diet_roberta",
    "diet_transformer",
    "optim",
    "tasks",
]
