"""What importing the plugin changes is what its table says, and can be taken back."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from diet_fairseq.patches import patch
from diet_fairseq.patches.patch import NAMES, REPLACE, WRAP, Patch, Patches, Setting
from diet_fairseq.patches.table import PATCHES, TABLE

PATCH_ROWS = [row for row in TABLE if isinstance(row, Patch)]
SETTINGS = [row for row in TABLE if isinstance(row, Setting)]

#: Prints the attributes of fairseq's modules and their classes that differ after the import of the
#: plugin, and after all was undone.
DIFFER = """
import importlib, inspect, json, sys
MODULES = json.loads(sys.argv[1])
for name in MODULES:
    importlib.import_module(name)

def attributes():
    found = {}
    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if name.split(".")[0] not in ("fairseq", "fairseq_cli") and name != "sys":
            continue
        for key, value in list(vars(module).items()):
            found[f"{name}:{key}"] = value
            if inspect.isclass(value) and value.__module__ == name:
                found |= {f"{name}:{key}.{k}": v for k, v in vars(value).items()}
    return found

def differing(one, other):
    nothing = object()
    names = one.keys() | other.keys()
    return sorted(n for n in names if one.get(n, nothing) is not other.get(n, nothing))

before = attributes()
import diet_fairseq
from diet_fairseq.patches.table import PATCHES
with_it = attributes()
kept = PATCHES.undo()
print(json.dumps([differing(before, with_it), differing(before, attributes()), kept]))
"""


def in_new_process(program, *args):
    done = subprocess.run(
        [sys.executable, "-c", program, *args], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def changes():
    """Attributes that differ after the import, after all was undone, and what could not be."""
    modules = in_new_process(
        "import diet_fairseq, json, sys\n"
        "roots = ('fairseq', 'fairseq_cli')\n"
        "print(json.dumps(sorted(n for n in sys.modules if n.split('.')[0] in roots)))"
    )
    return in_new_process(DIFFER, json.dumps(modules))


def named_by(target):
    """Whether some row of the table names this attribute."""
    module, _, attribute = target.partition(":")
    for row in PATCH_ROWS:
        package, _, wanted = row.target.partition(":")
        inside = f"{module}.".startswith(package.removesuffix("*")) and package.endswith("*")
        if attribute == wanted and (module == package or inside):
            return True
    return False


@pytest.mark.slow
def test_importing_changes_no_attribute_that_the_table_does_not_name(changes):
    # names that one module of fairseq's imports from another are the same object there
    assert changes[0]
    assert [name for name in changes[0] if not named_by(name)] == []


@pytest.mark.slow
def test_importing_changes_every_attribute_that_the_table_names(changes):
    exact = {row.target for row in PATCH_ROWS if ".*:" not in row.target}
    # MaskedLMTask.args is None, which is new
    assert exact - set(changes[0]) == set()


@pytest.mark.slow
def test_all_of_it_is_undone_without_a_trace(changes):
    assert changes[1:] == [[], []]


@pytest.mark.parametrize("row", PATCH_ROWS, ids=lambda row: row.target)
def test_a_row_is_applied_once_and_undone(row):
    name = row.target.rpartition(":")[2].rpartition(".")[2]
    places = row.places()
    PATCHES.apply()  # to what was imported since
    before = [vars(place)[name] for place in places]
    alone = Patches([row], str)
    alone.apply()
    first = [vars(place)[name] for place in places]
    alone.apply()
    assert all(vars(place)[name] is value for place, value in zip(places, first, strict=True))
    if row.how in (WRAP, NAMES):
        assert all(one is not other for one, other in zip(before, first, strict=True))
    else:
        assert all(value is row.by for value in first)
    assert alone.undo() == []
    assert all(vars(place)[name] is value for place, value in zip(places, before, strict=True))


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.target)
def test_a_setting_is_undone(row):
    import logging
    import warnings

    import diet_fairseq

    def state():
        level = logging.getLogger("hydra").level
        return list(warnings.filters), level, list(diet_fairseq.__path__)

    before = state()
    alone = Patches([row], str)
    alone.apply()
    alone.undo()
    assert state() == before


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.target)
def test_a_row_says_what_why_and_until_when(row):
    assert row.why
    assert row.until
    assert row.needed_with
    assert row.what()


@pytest.fixture
def owner(monkeypatch):
    """A module of somebody else's with a function and a class."""

    class Runner:
        def run(self):
            return "theirs"

    found = SimpleNamespace(greet=lambda: "theirs", Runner=Runner)
    monkeypatch.setitem(sys.modules, "somebody_else", found)
    return found


def louder(function):
    return lambda *args: function(*args).upper()


GREET = Patch("somebody_else:greet", WRAP, louder, "it is quiet", "it is loud")
RUN = Patch("somebody_else:Runner.run", WRAP, louder, "it is quiet", "it is loud")


def test_what_another_plugin_has_wrapped_since_is_not_wrapped_again(owner):
    ours = Patches([GREET], str)
    ours.apply()
    inner = owner.greet
    owner.greet = lambda: f"<{inner()}>"
    ours.apply()
    assert owner.greet() == "<THEIRS>"
    assert ours.undo() == ["somebody_else:greet"]
    assert owner.greet() == "<THEIRS>"


def test_a_target_that_is_not_there_is_an_error_before_anything_is_changed(owner):
    renamed = Patch("somebody_else:Runner.walk", WRAP, louder, "it is quiet", "it is loud")
    with pytest.raises(RuntimeError) as error:
        Patches([GREET, RUN, renamed], lambda: "somebody 1.2").apply()
    assert str(error.value) == (
        "somebody_else:Runner.walk is not there in somebody 1.2, and diet_fairseq changes it (it "
        "is quiet): install the version that diet_fairseq asks for"
    )
    assert owner.greet() == owner.Runner().run() == "theirs"


def test_two_rows_of_one_target_are_undone_in_turn(owner):
    twice = Patches([GREET, Patch(GREET.target, REPLACE, str, "why", "until")], str)
    twice.apply()
    assert owner.greet is str
    assert twice.undo() == []
    assert owner.greet() == "theirs"


def test_a_row_for_all_modules_of_a_package_reaches_those_imported_later(monkeypatch):
    def module(name):
        found = SimpleNamespace(__file__="", greet=lambda: "theirs")
        monkeypatch.setitem(sys.modules, name, found)
        return found

    first = module("somebodys.one")
    ours = Patches([Patch("somebodys.*:greet", WRAP, louder, "why", "until")], str)
    ours.apply()
    second = module("somebodys.two")
    ours.apply()
    assert first.greet() == second.greet() == "THEIRS"


def test_the_whole_table_is_applied():
    PATCHES.apply()  # to what was imported since
    assert {id(change) for change, _ in PATCHES._made.values()} == {
        id(row) for row in TABLE if row.places()
    }
    assert patch.MISSING not in {row.how for row in PATCH_ROWS}
