"""`import diet_fairseq` registers with fairseq in any order of imports; help waits for neither."""

import os
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
FIRST_IMPORTS = {
    "the package": """
import sys, diet_fairseq
assert not {"fairseq", "torch"} & sys.modules.keys()
""",
    "fairseq": "import fairseq, diet_fairseq",
    "the translator": """
import sys
from diet_fairseq import Translator
""",
    "fairseq before the translator": "import fairseq; from diet_fairseq import Translator",
    "the plugin": "import diet_fairseq.plugin",
    "a search for fairseq": """
import diet_fairseq
from importlib.util import find_spec
assert find_spec("fairseq") is not None
""",
    "--user-dir": f"""
from argparse import Namespace
from fairseq import utils
utils.import_user_module(Namespace(user_dir={str(PACKAGE)!r}))
""",
}


def succeed(program, **options):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow  # `test_table` imports it after fairseq
@pytest.mark.parametrize("first", FIRST_IMPORTS)
def test_the_plugin_is_active_whatever_is_imported_first(first):
    succeed(FIRST_IMPORTS[first] + "\n" + ACTIVE)


#: Each module is imported in a child of a process that has imported what its import takes long
#: for, and neither fairseq nor the package.
EACH_FIRST = """
import os, sys, torch, numpy, hydra.core, torch._dynamo, sacrebleu
for name in sys.argv[1:]:
    if not os.fork():
        try:
            __import__(name)
            exec(ACTIVE)
        except ModuleNotFoundError as error:  # of an optional library
            if error.name.startswith(("diet_fairseq", "fairseq")):
                raise
        except BaseException as error:
            print(name, repr(error))
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_every_module_can_be_imported_first():
    names = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "__main__.py"
    ]
    assert len(names) > 100
    program = f"ACTIVE = {ACTIVE!r}\n{EACH_FIRST}"
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]


NAMED, FOLDER = "Namespace(user_dir='diet_fairseq')", "Namespace(user_dir=folder)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        f"import_user({NAMED}); import_user({FOLDER}); import_user({NAMED})",
        f"import_user({FOLDER}); import_user({NAMED})",
        f"import diet_fairseq; import_user({NAMED}); import_user({FOLDER})",
    ],
)
@pytest.mark.parametrize("place", ["installed", "working folder"])
def test_user_dir_may_name_the_plugin_by_name_and_folder(steps, place, tmp_path):
    """An installed plugin lies beside fairseq, which spells its folder in another way."""
    packages = {"fairseq": Path(find_spec("fairseq").origin).parent, "diet_fairseq": PACKAGE}
    for name, folder in packages.items():
        (tmp_path / name).symlink_to(folder)
    if place == "working folder":
        (tmp_path / "fairseq").unlink()
    (tmp_path / "empty").mkdir()
    environment = os.environ | {"PYTHONPATH": str(tmp_path) if place == "installed" else ""}
    program = f"""
from argparse import Namespace
from fairseq.utils import import_user_module as import_user
folder = {str(tmp_path / "diet_fairseq")!r}
{steps}
"""
    cwd = tmp_path / "empty" if place == "installed" else tmp_path
    succeed(program + ACTIVE, cwd=cwd, env=environment)


def test_every_help_takes_at_most_half_a_second_of_cpu_time():
    for words in WORDS:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "diet_fairseq", *words, "--help"]
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime <= 0.5, words
