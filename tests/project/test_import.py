"""`import diet_fairseq` registers with fairseq where fairseq is imported, in any order."""

import subprocess
import sys

import pytest

REGISTERED = """
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
assert "transformer_diet_rel" in ARCH_MODEL_REGISTRY
assert "masked_lm_nsp" in TASK_REGISTRY
from diet_fairseq.patches.table import PATCHES
import diet_fairseq, sys
assert [type(finder) for finder in sys.meta_path].count(diet_fairseq.PluginFinder) <= 1
"""
FIRST_IMPORTS = {
    "the package": """
import sys, diet_fairseq
assert not {"fairseq", "torch"} & sys.modules.keys()
""",
    "fairseq": "import fairseq, diet_fairseq",
    # of one that the plugin imports too, which is not complete when fairseq is
    "a module": "from diet_fairseq.models.diet_roberta import DietRobertaModel",
    "the plugin": "import diet_fairseq.plugin",
    "a search for fairseq": """
import diet_fairseq
from importlib.util import find_spec
assert find_spec("fairseq") is not None
""",
    "--user-dir": """
import os
from argparse import Namespace
from importlib.util import find_spec
from fairseq import utils
folder = os.path.dirname(find_spec("diet_fairseq").origin)
utils.import_user_module(Namespace(user_dir=folder))
""",
}


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(name, marks=[] if name in ("the package", "--user-dir") else pytest.mark.slow)
        for name in FIRST_IMPORTS
    ],
)
def test_importing_registers_whatever_is_imported_first(first):
    program = FIRST_IMPORTS[first] + "\n" + REGISTERED
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
