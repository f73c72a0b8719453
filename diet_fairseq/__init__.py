"""Decoupled positional attention (DIET, TUPE and their baselines) for fairseq.

Importing it, as ``--user-dir diet_fairseq`` does, registers everything with fairseq and makes the
changes of `patches.table`. The environment variable DIET_FAIRSEQ_PATCHES says which ones:

- ``all`` (default)
- ``no-data``: fairseq's own models train and translate as without the plugin
- ``off``: nothing is registered or changed, and checkpoints are not read
"""

import os
from typing import TYPE_CHECKING, Any

from .modes import active_kinds
from .version import __version__

if active_kinds():
    import fairseq

    from . import criterions, optim, tasks
    from .models import diet_bert, diet_electra, diet_roberta, diet_transformer
    from .patches.table import PATCHES

    PATCHES.apply()
    # fairseq compares folders as text, and spells that of an installed plugin in this way
    __path__.append(os.path.join(os.path.dirname(fairseq.__file__), "..", __name__))

if TYPE_CHECKING:
    from .inference.translator import Translation, Translator

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
