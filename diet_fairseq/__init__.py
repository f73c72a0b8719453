"""Decoupled positional attention (DIET, TUPE and their baselines) for fairseq.

Importing it, as ``--user-dir diet_fairseq`` does, registers everything with fairseq and makes
fairseq run safely on today's PyTorch: `patches.table` lists what is changed.
"""

from typing import TYPE_CHECKING, Any

from . import criterions, optim, tasks
from .models import diet_bert, diet_electra, diet_roberta, diet_transformer
from .patches.table import PATCHES
from .version import __version__

if TYPE_CHECKING:
    from .inference.translator import Translation, Translator

PATCHES.apply()

__all__ = [
    "Translation",
    "Translator",
    "__version__",
    "criterions",
    "diet_bert",
    "diet_electra",
    "diet_roberta",
    "diet_transformer",
    "optim",
    "tasks",
]


def __getattr__(name: str) -> Any:
    """`Translator` and `Translation`, which `--user-dir` has no need to import."""
    if name in ("Translation", "Translator"):
        from .inference import translator

        return getattr(translator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
