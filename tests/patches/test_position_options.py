"""Options that a checkpoint's parameters don't show are compared with the model's."""

import copy
import json
import logging
from argparse import Namespace

import pytest
import torch

from diet_fairseq.models import warm_start
from tests.support import mutants, tiny
from tests.support.cases import NO_BACKEND, Case
from tests.support.commands import TINY, run

WITHOUT = [Case(case.scheme, family=case.family) for case in NO_BACKEND]


def warnings(before: Case, now: Case, as_saved=copy.copy) -> list[str]:
    """The warnings where a run with one model's options resumes from a checkpoint of another."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger(warm_start.__name__)
    logger.addHandler(handler)
    try:
        state = {"cfg": {"model": as_saved(tiny.model_of(before).args)}}
        with warm_start.checkpoint_loading(tiny.model_of(now), starts=False):
            warm_start.compare_descriptions("a.pt", state)
    finally:
        logger.removeHandler(handler)
    return messages


@torch.no_grad()
def check_options_without_a_trace(case: Case) -> None:
    """With an option parameters don't fit, compute the same, or the difference is logged."""
    theirs, ours = tiny.model_of(case), tiny.model_to_change(Case(case.scheme, family=case.family))
    shapes, fitting = (
        {name: value.shape for name, value in model.state_dict().items()}
        for model in (theirs, ours)
    )
    if shapes == fitting and not warnings(case, Case(case.scheme, family=case.family)):
        ours.load_state_dict(theirs.state_dict())
        assert tiny.difference(tiny.logits(ours), tiny.logits(theirs)) == 0, case


@tiny.each([case for case in NO_BACKEND if case.options])
def test_every_option_shows_in_the_parameters_or_is_logged(case):
    check_options_without_a_trace(case)


@tiny.each(list(dict.fromkeys(WITHOUT)))
def test_the_same_options_have_no_differences(case):
    assert not warnings(case, case)
    assert not warnings(case, case, as_saved=vars)


def test_a_description_of_an_earlier_version_has_no_differences():
    """Texts of earlier versions lack rope's options."""
    added = {"base", "share", "scaling", "factor", "trained"}

    def as_saved(args):
        text = json.loads(args.position_description)
        earlier = {name: text[name] for name in text if name not in added}
        return Namespace(**vars(args) | {"position_description": json.dumps(earlier)})

    assert not warnings(Case("rope"), Case("rope"), as_saved)


def test_missing_sinusoidal_positions_are_a_difference():
    [warning] = warnings(Case("diet_rel").but(position_input="sinusoidal"), Case("diet_rel"))
    assert "(input sinusoidal instead of none): its parameters fit" in warning


WARNINGS = {
    "--restore-file": "{} was trained with other position options (max distance 128 instead of "
    "64): its parameters fit this model, but the model computes another function; give the options "
    "of the checkpoint",
    "--finetune-from-model": "the checkpoint's position parameters are not loaded, because they "
    "were trained with other options (max distance 128 instead of 64): to load them, give these "
    "options",
}


T5 = (*TINY, "--arch", "transformer_t5", "--disable-validation")


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    done = run("train", data, *T5, "--max-update", 1, "--save-dir", folder)
    assert done.status == 0, done.last
    return folder / "checkpoint_last.pt"


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("start", WARNINGS)
def test_training_continues_with_a_warning(data, checkpoint, tmp_path, start):
    for distance, is_warned in ((128, False), (64, True)):
        done = run("train", data, *T5, "--max-update", 2, "--save-dir", tmp_path / str(distance),
                   start, checkpoint, "--position-max-distance", distance)  # fmt: skip
        assert done.status == 0, done.last
        assert (WARNINGS[start].format(checkpoint) in done.err) == is_warned


MUTANTS: mutants.Table = [
    (check_options_without_a_trace, mutants.formulas_not_compared, "kerple-kerple=power"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
