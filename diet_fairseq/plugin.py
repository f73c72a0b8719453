"""The plugin: models, tasks, criterions and optimizers for fairseq, and changes to fairseq.

Importing this module registers the models and other parts, and changes fairseq. A program that
imports both fairseq and `diet_fairseq`, in either order, imports this module at the second import.
"""

import os
import sys
from pathlib import Path

import fairseq
from fairseq import utils

from .criterions import diet_electra, diet_fused_label_smoothing, diet_masked_lm_nsp  # noqa: F401
from .distributions import check_distributions
from .errors import UserError, report_user_errors
from .models import diet_bert, diet_roberta, diet_transformer  # noqa: F401
from .models import diet_electra as electra_models  # noqa: F401
from .optim import fused_adamw, lamb_torch, linear_ratio  # noqa: F401
from .patches.table import PATCHES
from .tasks import diet_masked_lm_nsp as nsp_tasks  # noqa: F401

check_distributions(Path(fairseq.__file__).parents[1], fairseq.__version__)
try:
    PATCHES.apply()
except UserError:  # sys.excepthook, which is among the changes, does not report it yet
    sys.excepthook = report_user_errors(sys.excepthook)
    raise

# `import_user_module` skips a --user-dir whose folder is in its memo, and refuses a package that
# was imported in another way. It compares folders as text, and uses the last spelling for
# ``--user-dir diet_fairseq``, the name of an installed plugin.
_FOLDER = os.path.dirname(__file__)
utils.import_user_module.memo = getattr(utils.import_user_module, "memo", set()) | {
    os.path.abspath(_FOLDER),
    os.path.realpath(_FOLDER),
    os.path.join(os.path.dirname(utils.__file__), "..", __package__),
}
