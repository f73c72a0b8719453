"""`import diet_fairseq` registers with fairseq in any order of imports; help waits for neither."""

import os
import re
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import diet_fairseq
from tests.commands.test_cli import WORDS

PACKAGE = Path(diet_fairseq.__file__).parent
#: after a program: the plugin is registered, and a checkpoint is read by our `torch.load`
ACTIVE = """
import fairseq
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
assert "transformer_diet_rel" in ARCH_MODEL_REGISTRY
assert "masked_lm_nsp" in TASK_REGISTRY
from diet_fairseq.patches.patch import Proxy
assert isinstance(checkpoint_utils.torch, Proxy)
import diet_fairseq, sys
assert [type(finder) for finder in sys.meta_path].count(diet_fairseq.PluginFinder) <= 1
"""
FIRST_IMPORTS = [
    """
import sys, diet_fairseq
assert "fairseq" not in sys.modules
""",
    "import fairseq, diet_fairseq",
    "from diet_fairseq import Translator",
    "import fairseq; from diet_fairseq import Translator",
    """
import diet_fairseq
from importlib.util import find_spec
assert find_spec("fairseq") is not None
""",
    f"""
from argparse import Namespace
from fairseq import utils
utils.import_user_module(Namespace(user_dir={str(PACKAGE)!r}))
""",
]


def succeed(program, **options):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stderr


#: Runs each program in a child of a process that has imported what fairseq needs, and not fairseq.
EACH_FIRST = """
import os, sys, hydra.core, numpy, sacrebleu, scipy.stats, sklearn.metrics, torch.onnx.operators
for program in sys.argv[1:]:
    if not os.fork():
        try:
            exec(program, {})
            exec(ACTIVE)
        except BaseException as error:
            print(program, repr(error), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_the_plugin_is_active_whatever_is_imported_first():
    modules = {}  # folder -> a module in it that imports fairseq
    for path in sorted(PACKAGE.rglob("*.py")):
        if re.search("^(from|import) fairseq", path.read_text(), re.MULTILINE):
            modules[path.parent] = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    program = f"ACTIVE = {ACTIVE!r}\n{EACH_FIRST}"
    imports = [f"import {name}" for name in ("diet_fairseq.plugin", *modules.values())]
    command = [sys.executable, "-c", program, *FIRST_IMPORTS, *imports]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]
    assert {f"diet_fairseq.{path.name}" for path in modules} >= diet_fairseq.PLUGIN_PACKAGES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "before"), [("installed", "import diet_fairseq"), ("working folder", "")]
)
def test_user_dir_may_name_the_plugin_by_name_and_folder(place, before, tmp_path):
    """An installed plugin lies beside fairseq, which spells its folder in another way."""
    (tmp_path / "diet_fairseq").symlink_to(PACKAGE)
    cwd, path = tmp_path, ""
    if place == "installed":
        cwd, path = tmp_path / "empty", str(tmp_path)
        cwd.mkdir()
        (tmp_path / "fairseq").mkdir()
        for part in Path(find_spec("fairseq").origin).parent.iterdir():
            (tmp_path / "fairseq" / part.name).symlink_to(part)
    program = f"""
{before}
from argparse import Namespace
from fairseq.utils import import_user_module
for folder in ("diet_fairseq", {str(tmp_path / "diet_fairseq")!r}, "diet_fairseq"):
    import_user_module(Namespace(user_dir=folder))
"""
    succeed(program + ACTIVE, cwd=cwd, env=os.environ | {"PYTHONPATH": path})


@pytest.mark.slow
def test_every_help_takes_at_most_half_a_second_of_cpu_time():
    for words in WORDS:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "diet_fairseq", *words, "--help"]
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime <= 0.5, words
