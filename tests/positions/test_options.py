"""Schemes declare their options; one that several have means the same to all of them."""

from dataclasses import replace

import pytest

from diet_fairseq import config
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES
from diet_fairseq.positions.options import at_least
from diet_fairseq.positions.relative import CLIP
from tests.support.cases import ENCODER_VALUES, OTHER_VALUES

#: options of the initial score, which test_gain.py tests and no property asks for
INITIAL_SCORE = {"position_gain", "position_start", "position_peak"}


def test_the_table_is_the_union_of_what_schemes_declare():
    declared = {option.name for scheme in SCHEMES.values() for option in scheme.options}
    general = {option.name for option in config.GENERAL_OPTIONS}
    assert set(config.position_options()) == declared | general
    assert all(option.name == name for name, option in config.position_options().items())


def test_a_default_of_a_scheme_is_no_default_of_the_table():
    assert SCHEMES["shaw"].options[0] == CLIP.with_default(16)
    assert config.position_options()["position_clip"].default is None
    assert config.position_options()["position_values"].default is False


@pytest.mark.parametrize(
    "change",
    [{"help": "another"}, {"check": at_least(1)}, {"type": float}, {"choices": ("1", "2")}],
    ids=lambda change: next(iter(change)),
)
def test_options_of_one_name_that_differ_are_refused(change, monkeypatch):
    monkeypatch.setattr(SCHEMES["shaw"], "options", (replace(CLIP, **change),))
    with pytest.raises(TypeError, match=r"'position_clip' .* must not differ from another option"):
        config.position_options()


def test_a_check_names_the_flag_and_the_value():
    with pytest.raises(UserError, match="--position-clip must be at least 1, but is 0"):
        CLIP.check(CLIP.flag, 0)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_option_has_another_value_for_the_properties(name):
    tested = {option for values in OTHER_VALUES + ENCODER_VALUES for option in values}
    for option in {option.name for option in SCHEMES[name].options} - INITIAL_SCORE:
        assert option in tested, f"tests/support/cases.py: OTHER_VALUES lacks {option} ({name})"
