"""Schemes declare their options; one that several have means the same to all of them."""

from typing import Annotated

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES
from diet_fairseq.positions.options import Option, at_least, common, options_in
from tests.support.cases import OTHER_VALUES

CLIP = Option("largest offset", check=at_least(1), type=int)

#: of these the initial score is tested, which no property asks for: test_gain.py
OF_THE_START = {"gain", "start", "peak"}


@pytest.mark.parametrize("other", [Option(type=int), Option(type=int, default=7)])
def test_a_plain_type_takes_over_what_another_scheme_says_of_the_option(other):
    assert common("clip", CLIP, other) == common("clip", other, CLIP) == CLIP
    assert common("clip", other, other) == Option(type=int)


@pytest.mark.parametrize(
    "other",
    [
        Option("another meaning", check=CLIP.check, type=int),
        Option("largest offset", check=at_least(1), type=int),  # another check
        Option(type=float),
        Option("largest offset", check=CLIP.check, choices=("1", "2"), type=int),
    ],
)
def test_options_of_one_name_that_differ_are_refused(other):
    with pytest.raises(TypeError, match="two schemes declare the option 'clip' differently"):
        common("clip", CLIP, other)


def test_schemes_options_are_read_from_their_constructors():
    class Scheme:
        def __init__(self, shape, *, clip: Annotated[int | None, CLIP] = None, wide: bool = False):
            pass

    found = options_in(Scheme)
    assert found["clip"] == CLIP
    assert (found["wide"].type, found["wide"].default) == (bool, False)
    with pytest.raises(UserError, match="--position-clip must be at least 1, but is 0"):
        found["clip"].check("--position-clip", 0)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_option_has_another_value_that_all_properties_are_tested_with(name):
    tested = {option for values in OTHER_VALUES for option in values}
    for option in set(options_in(SCHEMES[name])) - OF_THE_START:
        assert f"position_{option}" in tested, (
            f"tests/support/cases.py: OTHER_VALUES lacks position_{option}, which {name} has"
        )
