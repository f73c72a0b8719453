"""Importing the plugin changes the attributes that its table names, and no others."""

import inspect
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import fairseq
import pytest

from diet_fairseq import patches
from diet_fairseq.errors import UserError
from diet_fairseq.patches.patch import (
    PATCH_REASONS,
    PATCHES_MODES,
    PATCHES_VARIABLE,
    Patch,
    Patches,
    active_reasons,
)
from diet_fairseq.patches.table import TABLE

ROOT = Path(__file__).parents[2]
#: of CPU time
MOST_SECONDS = 0.7

#: For each mode, in a process of its own that has imported fairseq: the attributes of fairseq's
#: modules, of their classes and of sys that differ after --user-dir is imported; what it
#: registers; the attributes that differ when all is undone; the packages that are imported with
#: it, and the CPU time that this takes.
DIFFER = """
import argparse, importlib, inspect, json, os, sys
from time import process_time
import fairseq.models, fairseq.tasks, fairseq.criterions, fairseq.optim, fairseq.utils

def in_child(function):
    reading, writing = os.pipe()
    if not os.fork():
        with os.fdopen(writing, "w") as out:
            json.dump(function(), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as result:
        return json.load(result)

def import_plugin():
    fairseq.utils.import_user_module(argparse.Namespace(user_dir=sys.argv[1]))

def modules():
    import_plugin()
    return sorted(n for n in sys.modules if n.split(".")[0] in ("fairseq", "fairseq_cli"))

def attributes():
    values = {}
    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if name.split(".")[0] not in ("fairseq", "fairseq_cli") and name != "sys":
            continue
        for key, value in list(vars(module).items()):
            values[f"{name}:{key}"] = value
            if inspect.isclass(value) and value.__module__ == name:
                values |= {f"{name}:{key}.{k}": v for k, v in vars(value).items()}
    return values

def differing(before, after):
    nothing = object()
    names = before.keys() | after.keys()
    # fairseq itself sets the parsers, for its documentation, when it imports models of --user-dir
    names = {n for n in names if not (n.startswith("fairseq.models:") and n.endswith("_parser"))}
    return sorted(n for n in names if before.get(n, nothing) is not after.get(n, nothing))

def registered():
    from fairseq.registry import REGISTRIES
    names = {*fairseq.models.ARCH_MODEL_REGISTRY, *fairseq.tasks.TASK_REGISTRY}
    return names.union(*(registry["registry"] for registry in REGISTRIES.values()))

def in_mode(mode):
    os.environ["DIET_FAIRSEQ_PATCHES"] = mode
    before, names, loaded, start = attributes(), registered(), set(sys.modules), process_time()
    import_plugin()
    seconds = process_time() - start
    packages = {name.partition(".")[0] for name in set(sys.modules) - loaded}
    packages |= {"torch.distributed.tensor", "torch.distributed.fsdp"} & set(sys.modules)
    changed, new = differing(before, attributes()), sorted(registered() - names)
    from diet_fairseq.patches.table import PATCHES
    rest = PATCHES.undo()
    return {
        "attributes": changed, "registered": new, "seconds": seconds,
        "undone": differing(before, attributes()) + rest,
        "packages": sorted(packages - sys.stdlib_module_names),
    }

for name in in_child(modules):
    importlib.import_module(name)
print(json.dumps({mode: in_child(lambda: in_mode(mode)) for mode in ("all", "no-correctness")}))
"""


@pytest.fixture(scope="module")
def changes():
    done = subprocess.run(
        [sys.executable, "-c", DIFFER, str(ROOT / "diet_fairseq")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("mode", PATCHES_MODES)
def test_importing_changes_the_targets_of_the_table_alone(mode, changes):
    rows = [row for row in TABLE if row.reasons.keys() & PATCHES_MODES[mode]]
    assert set(changes[mode]["attributes"]) == {row.target for row in rows}


@pytest.mark.slow
def test_importing_takes_little_time_on_top_of_fairseq(changes):
    assert min(changes[mode]["seconds"] for mode in PATCHES_MODES) <= MOST_SECONDS


@pytest.mark.slow
def test_everything_is_registered_in_every_mode(changes):
    names = {"transformer_diet_rel", "masked_lm_nsp", "fused_adamw", "linear_ratio", "electra"}
    assert names <= set(changes["all"]["registered"])
    assert changes["all"]["registered"] == changes["no-correctness"]["registered"]


@pytest.mark.slow
def test_importing_imports_no_other_packages(changes):
    """scikit-learn, scipy and PyTorch's sharding are imported where they are used."""
    assert set(changes["all"]["packages"]) <= {"diet_fairseq", "torch"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", PATCHES_MODES)
def test_every_change_is_undone_in_every_mode(mode, changes):
    assert changes[mode]["undone"] == []


@pytest.mark.parametrize("mode", ["off", "ALL"])
def test_an_unknown_mode_is_refused(mode, monkeypatch):
    monkeypatch.setenv(PATCHES_VARIABLE, mode)
    with pytest.raises(UserError) as error:
        active_reasons()
    assert str(error.value) == (
        "DIET_FAIRSEQ_PATCHES must be all or no-correctness, in lower case, but is "
        f"'{mode}': unset it; to use fairseq without the plugin, leave out --user-dir and "
        "`import diet_fairseq`"
    )


@pytest.mark.parametrize(
    ("mode", "left_out"),
    [
        ("", set()),
        ("all", set()),
        ("no-correctness", {"correctness"}),
    ],
)
def test_a_mode_leaves_out_correctness_at_most(mode, left_out, monkeypatch):
    monkeypatch.setenv(PATCHES_VARIABLE, mode)
    assert active_reasons() == PATCH_REASONS - left_out


def output_of(mode, *words):
    """Status and standard error of Python with these arguments in a mode."""
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False,
        env={**os.environ, "DIET_FAIRSEQ_PATCHES": mode, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["-c", "import diet_fairseq, fairseq"],
        ["-m", "fairseq_cli.train", "data", "--user-dir", str(ROOT / "diet_fairseq")],
    ],
)
def test_an_unknown_mode_ends_in_one_line(words):
    status, errors = output_of("off", *words)
    assert status == 1
    line = errors.splitlines()[-1]
    assert line.startswith("error: DIET_FAIRSEQ_PATCHES must be all or no-correctness, in lower")
    assert "Traceback" not in errors


def test_each_target_is_wrapped_once():
    targets = [row.target for row in TABLE]
    assert len(targets) == len(set(targets))


def test_each_function_of_the_patches_has_its_own_name():
    functions = [
        name
        for path in Path(patches.__file__).parent.glob("*.py")
        for name, value in vars(import_module(f"{patches.__name__}.{path.stem}")).items()
        if inspect.isfunction(value) and value.__module__ == f"{patches.__name__}.{path.stem}"
    ]
    assert len(functions) == len(set(functions))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.target)
def test_a_row_has_reasons_and_is_applied_once_and_undone(row):
    assert row.reasons
    assert row.reasons.keys() <= PATCH_REASONS
    assert all(row.reasons.values())
    assert "." in row.replacement
    owner, name = row.find_target()
    before = vars(owner)[name]
    alone = Patches([row])
    alone.apply()
    first = vars(owner)[name]
    # Trainer.is_fsdp is False already, and a hook may report mistakes already
    assert first is not before or first is False or hasattr(before, "reports_user_errors")
    alone.apply()
    assert vars(owner)[name] is first
    assert alone.undo() == []
    assert vars(owner)[name] is before


@pytest.fixture
def owner(monkeypatch):
    """A module of somebody else's with a function and a class."""

    class Runner:
        def run(self):
            return "theirs"

    module = SimpleNamespace(greet=lambda: "theirs", Runner=Runner)
    monkeypatch.setitem(sys.modules, "somebody_else", module)
    return module


def louder(function):
    return lambda *args: function(*args).upper()


REASON = {"correctness": "it is quiet"}
GREET = Patch("somebody_else:greet", louder, REASON)
RUN = Patch("somebody_else:Runner.run", louder, REASON)


def test_a_later_wrap_of_somebody_else_s_stays(owner):
    ours = Patches([GREET])
    ours.apply()
    inner = owner.greet
    owner.greet = lambda: f"<{inner()}>"
    ours.apply()
    assert owner.greet() == "<THEIRS>"
    assert ours.undo() == ["somebody_else:greet"]
    assert owner.greet() == "<THEIRS>"


def test_a_missing_target_is_an_error_before_any_change(owner):
    renamed = Patch("somebody_else:Runner.walk", louder, REASON)
    with pytest.raises(RuntimeError) as error:
        Patches([GREET, RUN, renamed]).apply()
    assert str(error.value) == (
        f"somebody_else:Runner.walk is missing in fairseq {fairseq.__version__}, and "
        "diet_fairseq changes it (it is quiet): install the version that diet_fairseq asks for"
    )
    assert owner.greet() == owner.Runner().run() == "theirs"


@pytest.mark.parametrize("mode", PATCHES_MODES)
@pytest.mark.parametrize("other", [{}, {"plugin": "it is quiet to our models"}])
def test_a_row_without_an_active_reason_is_left_out(owner, monkeypatch, mode, other):
    monkeypatch.setenv(PATCHES_VARIABLE, mode)
    Patches([Patch("somebody_else:greet", louder, REASON | other)]).apply()
    assert owner.greet() == ("THEIRS" if mode == "all" or other else "theirs")
