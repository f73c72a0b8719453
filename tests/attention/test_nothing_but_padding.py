"""A sentence that is all padding changes nothing for the others, whatever computes attention."""

from unittest import mock

import pytest
import torch
from torch.testing import assert_close as close

from diet_fairseq.attention import packing
from tests.support import mutants, tiny
from tests.support.tiny import PAD, SOURCES, TARGETS, TOLERANCE, Case

FIRST = [
    case
    for case in tiny.first_of_each_scheme(tiny.TRANSLATION)
    + tiny.first_of_each_scheme(tiny.ENCODERS)
    if case.family != "bert"
]
PATHS = [(case, backend) for case in FIRST for backend in ("reference", *tiny.fast_paths(case))]
QUICK = tiny.quick_cases(__name__, FIRST)
NOTHING = torch.full((4,), PAD)


def check_nothing_but_padding(case: Case, backend: str = "reference") -> None:
    """Outputs and gradients stay the same in training mode; dropout is 0."""
    model = tiny.copy_of(tiny.model_of(case), case.but(attention_backend=backend)).train()
    results = []
    for appended in ([], [NOTHING]):
        with mock.patch.object(packing, "MIN_PADDING_SHARE", 2.0):  # packing would hide them
            out = tiny.logits(model, [*SOURCES, *appended], [*TARGETS, *appended])
        results.append((out, tiny.gradients(model, tiny.some_loss(out))))
    (expected, expected_gradients), (out, gradients) = results
    close(out, expected, **TOLERANCE)
    tiny.assert_same_gradients(gradients, expected_gradients, 2e-5)


@pytest.mark.parametrize(
    ("case", "backend"),
    [
        pytest.param(*path, id="-".join(map(str, path)), marks=tiny.run_of(path[0], QUICK))
        for path in PATHS
    ],
)
def test_a_sentence_of_padding_changes_no_output_and_no_gradient(case, backend):
    check_nothing_but_padding(case, backend)


MUTANTS: mutants.Table = [
    (check_nothing_but_padding, mutants.padding_that_no_query_sees, "diet_abs-roberta"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
