"""Decoupled positional attention (DIET, TUPE and their baselines) for fairseq.

Importing it, as ``--user-dir diet_fairseq`` does, registers everything with fairseq and makes
fairseq run safely on today's PyTorch.
"""

import os

import fairseq

from . import beam_search, compat, criterions, optim, tasks
from .errors import report_user_errors
from .models import diet_bert, diet_roberta, diet_transformer
from .version import __version__

compat.apply()
beam_search.apply()
report_user_errors()
# fairseq spells an installed plugin's folder like this, and takes any other spelling of a package
# that is already imported for a stranger of the same name.
__path__.append(os.path.join(os.path.dirname(fairseq.__file__), "..", __name__))

__all__ = [
    "__version__",
    "criterions",
    "diet_bert",
    "diet_roberta",
    "diet_transformer",
    "optim",
    "tasks",
]
