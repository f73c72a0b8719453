"""`import diet_fairseq` registers with fairseq in any order of imports; help waits for neither."""

import resource
import subprocess
import sys

import pytest

from tests.commands.test_cli import WORDS

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
    # the plugin imports it, too, and it is not complete when fairseq is
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


@pytest.mark.slow  # `test_table` imports it after fairseq
@pytest.mark.parametrize("first", FIRST_IMPORTS)
def test_importing_registers_whatever_is_imported_first(first):
    program = FIRST_IMPORTS[first] + "\n" + REGISTERED
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_help_takes_at_most_half_a_second_of_cpu_time():
    for words in WORDS:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "diet_fairseq", *words, "--help"]
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime <= 0.5, words
