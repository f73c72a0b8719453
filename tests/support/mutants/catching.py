"""Functions to write mutants, and to assert that a check catches them."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from diet_fairseq.positions import SCHEMES
from tests.support import tiny

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]
Check = Callable[..., None]
#: the check, a mutant that it must catch, and the case to see it in, by name if it is a `Case`
Table = list[tuple[Check, Mutant, Any]]


def assert_caught(check: Check, mutant: Mutant, case: str) -> None:
    # the check gets a name of no case as it is
    parameter: Any = next((known for known in tiny.CASES if str(known) == case), case)
    tiny.model_of.cache_clear()
    try:
        with Patch.context() as patch:
            mutant(patch)
            with pytest.raises(AssertionError):
                check(parameter)
    finally:
        tiny.model_of.cache_clear()


def each(table: Table) -> pytest.MarkDecorator:
    """Parametrize over a table: the id is the mutant's name and its case."""
    ids = [f"{check.__name__}-{mutant.__name__}-{case}" for check, mutant, case in table]
    return pytest.mark.parametrize(("check", "mutant", "case"), table, ids=ids)


def build_test(table: Table) -> Callable[..., None]:
    """A test that every mutant of the table is caught."""

    @each(table)
    def test_a_mutant_is_caught(check: Check, mutant: Mutant, case: Any) -> None:
        assert_caught(check, mutant, case)

    return test_a_mutant_is_caught


def instead_of(owner: Any, name: str) -> Callable[[Callable[..., Any]], Mutant]:
    """The decorated function, given the original and its arguments, runs in its place."""

    def decorate(change: Callable[..., Any]) -> Mutant:
        @wraps(change)
        def mutant(patch: Patch) -> None:
            original = getattr(owner, name)

            def changed(*args: Any, **kwargs: Any) -> Any:
                return change(original, *args, **kwargs)

            unbound = isinstance(vars(owner).get(name), (staticmethod, classmethod))
            patch.setattr(owner, name, staticmethod(changed) if unbound else changed)

        return mutant

    return decorate


def instead_of_scores(change: Callable[..., Any]) -> Mutant:
    """The decorated function runs instead of ``score`` in every scheme that has one."""
    classes = {part for scheme in SCHEMES.values() for part in scheme.__mro__}

    def mutant(patch: Patch) -> None:
        for scheme in classes:
            if "score" in vars(scheme):
                instead_of(scheme, "score")(change)(patch)

    return wraps(change)(mutant)
