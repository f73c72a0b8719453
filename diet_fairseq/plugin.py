"""The plugin: models, tasks, criterions and optimizers for fairseq, and changes to fairseq.

Importing this module registers and changes all of them. `import diet_fairseq` imports it as soon as
fairseq is imported, and so does ``--user-dir diet_fairseq``.
"""

import os

import fairseq

import diet_fairseq

from . import criterions, optim, tasks  # noqa: F401
from .models import diet_bert, diet_electra, diet_roberta, diet_transformer  # noqa: F401
from .patches.table import PATCHES

PATCHES.apply()
# fairseq compares folders as text, and spells that of an installed plugin in this way
_FOLDER = os.path.join(os.path.dirname(fairseq.__file__), "..", diet_fairseq.__name__)
diet_fairseq.__path__.append(_FOLDER)
