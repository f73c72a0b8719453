"""Options that a checkpoint's parameters don't show are compared with the model's."""

from argparse import Namespace

import pytest

from diet_fairseq.patches import position_options
from tests.support import mutants, tiny
from tests.support.cases import NO_BACKEND, Case, arguments
from tests.support.commands import TINY, run

WITHOUT = [Case(case.scheme, family=case.family) for case in NO_BACKEND]


def with_defaults(case: Case) -> Namespace:
    """A checkpoint's arguments: with the defaults that building a model fills in."""
    args = arguments(case)
    tiny.from_arguments(args)
    return args


def shapes(case: Case):
    return {name: value.shape for name, value in tiny.model_of(case).state_dict().items()}


def differences(before: Case, now: Case, as_saved=lambda args: args) -> list[tuple[str, str]]:
    """The differences that are logged where a checkpoint of one model is loaded into another."""
    state = {
        "model": tiny.model_of(before).state_dict(),
        "cfg": {"model": as_saved(with_defaults(before))},
    }
    return [*position_options.differences(state, tiny.model_of(now), with_defaults(now))]


def check_options_without_a_trace(case: Case) -> None:
    """With an option, parameters have other names or shapes, or the difference is logged."""
    without = Case(case.scheme, family=case.family)
    changed = {name for name, _ in shapes(case).items() ^ shapes(without).items()}
    if not changed:
        # a scheme without parameters has nothing to share
        untold = {"position_sharing"} if not tiny.has_parameters(case.scheme) else set()
        assert differences(case, without) or dict(case.options).keys() <= untold, case
    elif any("positions." in name and not name.endswith("gain") for name in changed):
        assert not differences(case, without), case


@tiny.each([case for case in NO_BACKEND if case.options])
def test_every_option_shows_in_the_parameters_or_is_logged(case):
    check_options_without_a_trace(case)


@tiny.each(list(dict.fromkeys(WITHOUT)))
def test_the_same_options_have_no_differences(case):
    assert not differences(case, case)
    assert not differences(case, case, as_saved=vars)


@pytest.mark.parametrize("before", ["learned", "sinusoidal", "t5-buckets=8-max_distance=6"])
def test_another_scheme_has_no_differences(before):
    """A warm start logs what it takes, and a failing load the reason."""
    assert not differences(tiny.named(before), Case("tupe_r"))


def test_missing_sinusoidal_positions_are_a_difference():
    assert differences(Case("sinusoidal", family="roberta"), Case("none", family="roberta")) == [
        ("with --position-input sinusoidal", "with --position-input none")
    ]


WARNINGS = {
    "--restore-file": "{} was trained with --position-max-distance 128, but this model is built "
    "with --position-max-distance 64: its parameters fit, and compute something else; to "
    "go on with what it was, build it with --position-max-distance 128",
    "--finetune-from-model": "the checkpoint's positions are not taken, as they mean something "
    "else: they have max distance 128 instead of 64; to go on with them, give the options that "
    "they were trained with",
}


T5 = (*TINY, "--arch", "transformer_t5", "--disable-validation")


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    done = run("train", data, *T5, "--max-update", 1, "--save-dir", folder)
    assert done.status == 0, done.last
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize("start", WARNINGS)
def test_training_continues_with_a_warning(data, checkpoint, tmp_path, start):
    for distance, is_warned in ((128, False), (64, True)):
        done = run("train", data, *T5, "--max-update", 2, "--save-dir", tmp_path / str(distance),
                   start, checkpoint, "--position-max-distance", distance)  # fmt: skip
        assert done.status == 0, done.last
        assert (WARNINGS[start].format(checkpoint) in done.err) == is_warned


MUTANTS: mutants.Table = [
    (
        check_options_without_a_trace,
        mutants.parameters_of_positions_not_compared,
        "tupe_a-bert-untie_cls=no",
    ),
    (
        check_options_without_a_trace,
        mutants.untied_cls_not_compared,
        "tupe_a-bert-untie_cls=paper",
    ),
    (
        check_options_without_a_trace,
        mutants.positions_at_the_input_not_compared,
        "diet_rel-input=sinusoidal",
    ),
]


@mutants.each(MUTANTS)
def test_a_mutant_is_caught(check, mutant, case):
    mutants.assert_caught(check, mutant, case)
