"""No property without a fault that it was seen to catch, no fault that nothing catches."""

import inspect

import mutants
import pytest
import test_backend_choice
import test_beam_search
import test_current_parameters
import test_encoders
import test_equivalence
import test_gain
import test_half_precision_gradients
import test_invariance
import test_linformer
import test_liveness
import test_packing
import test_schemes
import test_search_fuzz
import test_state

SUITE = [
    test_backend_choice,
    test_beam_search,
    test_current_parameters,
    test_encoders,
    test_equivalence,
    test_gain,
    test_half_precision_gradients,
    test_invariance,
    test_linformer,
    test_liveness,
    test_packing,
    test_schemes,
    test_search_fuzz,
    test_state,
]


@pytest.mark.parametrize("module", SUITE, ids=lambda module: module.__name__)
def test_every_property_has_a_mutant(module):
    checks = {f for name, f in inspect.getmembers(module) if name.startswith("check_")}
    assert checks
    assert checks == {check for check, _, _ in module.MUTANTS}


def test_every_mutant_is_caught_by_something():
    written = {
        f
        for f in vars(mutants).values()
        if inspect.isfunction(f) and f.__module__ == "mutants" and _takes_a_patch(f)
    }
    assert written == {mutant for module in SUITE for _, mutant, _ in module.MUTANTS}


def _takes_a_patch(function) -> bool:
    return list(inspect.signature(function, follow_wrapped=False).parameters) == ["patch"]
