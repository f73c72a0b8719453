"""Options that a checkpoint's parameters don't show are compared with the model's."""

from argparse import Namespace

import pytest

from diet_fairseq.patches.loading import options
from tests.support import commands, mutants, tiny
from tests.support.cases import NO_BACKEND, Case, arguments
from tests.support.commands import TINY, run

WITHOUT = [Case(case.scheme, family=case.family) for case in NO_BACKEND]


def settled(case: Case) -> Namespace:
    """The arguments as a checkpoint has them: with the defaults that building a model fills in."""
    args = arguments(case)
    tiny.from_arguments(args)
    return args


def shapes(case: Case):
    return {name: value.shape for name, value in tiny.model_of(case).state_dict().items()}


def check_options_without_a_trace(case: Case) -> None:
    """With an option, parameters have other names or shapes, or the difference is told."""
    without = Case(case.scheme, family=case.family)
    if shapes(case) == shapes(without):
        found = [*options.differences(settled(case), settled(without))]
        assert len(found) == len(case.options), case


@tiny.each([case for case in NO_BACKEND if case.options])
def test_every_option_shows_in_the_parameters_or_is_told(case):
    check_options_without_a_trace(case)


@tiny.each(list(dict.fromkeys(WITHOUT)))
def test_nothing_is_told_of_the_same_options(case):
    assert not [*options.differences(settled(case), settled(case))]
    assert not [*options.differences(vars(settled(case)), settled(case))]


def test_nothing_is_told_of_another_scheme_s_options():
    buckets = settled(tiny.named("t5-buckets=8-max_distance=6"))
    assert not [*options.differences(buckets, settled(Case("tupe_r")))]


def test_sinusoidal_positions_that_are_left_out_are_told_of():
    before, now = (
        settled(Case("sinusoidal", family="roberta")),
        settled(Case("none", (), "roberta")),
    )
    assert [*options.differences(before, now)] == [
        ("with --position-input sinusoidal", "with --position-input none")
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("start", ["--finetune-from-model", "--restore-file"])
def test_training_goes_on_with_a_warning(data, tmp_path, start):
    T5 = (*TINY, "--arch", "transformer_t5", "--disable-validation")
    first = run("train", data, *T5, "--max-update", 1, "--save-dir", tmp_path / "first")
    assert first.status == 0, first.last
    checkpoint = tmp_path / "first" / "checkpoint_last.pt"
    for distance, warned in ((128, False), (64, True)):
        done = run("train", data, *T5, "--max-update", 2, "--save-dir", tmp_path / str(distance),
                   start, checkpoint, "--position-max-distance", distance)  # fmt: skip
        assert done.status == 0, done.last
        words = (
            f"{checkpoint} was trained with --position-max-distance 128, but this model is built "
            "with --position-max-distance 64: its parameters fit, and compute something else; to "
            "go on with what it was, build it with --position-max-distance 128"
        )
        assert (words in done.err) == warned


def without_comparing(name):
    def mutant(patch):
        for group in ("OF_ALL", "OF_A_SCHEME"):
            kept = [one for one in getattr(options, group) if one != name]
            patch.setattr(options, group, tuple(kept))

    mutant.__name__ = f"without_{name}"
    return mutant


MUTANTS: mutants.Table = [
    (
        check_options_without_a_trace,
        without_comparing("position_untie_cls"),
        "tupe_a-bert-untie_cls=paper",
    ),
    (
        check_options_without_a_trace,
        without_comparing("position_input"),
        "diet_rel-input=sinusoidal",
    ),
]


@mutants.each(MUTANTS)
def test_a_mutant_is_caught(check, mutant, case):
    mutants.assert_caught(check, mutant, case)
