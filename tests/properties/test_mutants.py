"""Every property catches a fault, and every fault is caught."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.support import cases, mutants, tiny

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


def find_shares(names, days, monkeypatch):
    """The cases that tests of these names have on these days."""
    shares = []
    for day in days:
        monkeypatch.setattr(cases, "DAY", day)
        shares += [tiny.share_of(name, tiny.CASES) for name in names]
    return {case for share in shares for case in share}


@pytest.mark.parametrize("day", range(10))
def test_a_share_has_every_scheme_kind_of_model_sharing_and_backend(day, monkeypatch):
    share = find_shares(["test"], [day], monkeypatch)
    for key in ("scheme", "family"):
        assert {getattr(case, key) for case in share} == {getattr(case, key) for case in tiny.CASES}
    for name in ("position_sharing", "attention_backend"):
        values = {dict(case.options).get(name) for case in tiny.CASES}
        assert {dict(case.options).get(name) for case in share} == values


def test_the_shares_of_a_day_meet_every_case(monkeypatch):
    names = ["test" + "_" * length for length in range(10)]
    assert find_shares(names, [1], monkeypatch) == {*tiny.CASES}


def test_a_test_meets_every_case_within_a_week(monkeypatch):
    assert find_shares(["test"], range(2), monkeypatch) != {*tiny.CASES}
    assert find_shares(["test"], range(7), monkeypatch) == {*tiny.CASES}


def _takes_a_patch(function) -> bool:
    return list(inspect.signature(function, follow_wrapped=False).parameters) == ["patch"]
