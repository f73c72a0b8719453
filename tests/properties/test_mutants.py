"""Every property catches a fault, and every fault is caught."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.support import mutants, tiny

TESTS = Path(__file__).parents[1]
SUITE = [
    import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))
    for path in sorted(TESTS.rglob("test_*.py"))
    if re.search(r"^(MUTANTS = |def check_)", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("module", SUITE, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_property_has_a_mutant(module):
    checks = {f for name, f in inspect.getmembers(module) if name.startswith("check_")}
    assert checks
    assert checks == {check for check, _, _ in module.MUTANTS}
    assert inspect.isfunction(module.test_a_mutant_is_caught)  # a test that pytest collects


def test_every_mutant_is_caught_by_something():
    defined = {
        f
        for f in vars(mutants).values()
        if inspect.isfunction(f) and f.__module__.startswith(mutants.__name__) and _takes_a_patch(f)
    }
    assert defined == {mutant for module in SUITE for _, mutant, _ in module.MUTANTS}


def test_the_properties_together_meet_every_case():
    """Each takes its share."""
    marks = (
        mark
        for module in SUITE
        for test in vars(module).values()
        for mark in getattr(test, "pytestmark", [])
    )
    met = {
        argument
        for mark in marks
        if mark.name == "parametrize" and mark.args[0] == "case"
        for parameter in mark.args[1]
        for argument in getattr(parameter, "values", [parameter])
    }
    assert met.issuperset(tiny.CASES)


def _takes_a_patch(function) -> bool:
    return list(inspect.signature(function, follow_wrapped=False).parameters) == ["patch"]
