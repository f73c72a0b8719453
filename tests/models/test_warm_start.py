"""A model may start from a checkpoint of one with other positions, and tells what it did."""

import copy
import logging
import re

import pytest
import torch

from diet_fairseq.models import warm_start
from tests.support import mutants, tiny
from tests.support.tiny import PAD, SOURCES, TOLERANCE, Case, padded

close = torch.testing.assert_close
FIRST = tiny.first_of_each_scheme(tiny.ENCODERS)
FIRST_BERTS = tiny.first_of_each_scheme([c for c in tiny.ENCODERS if c.family == "bert"])


def stock_roberta():
    return tiny.stock("roberta")


def warm(case: Case, checkpoint, **options):
    """A model that starts from parameters alone, without a configuration."""
    model = tiny.fresh(case, seed=2, **options)
    with warm_start.checkpoint_loading(model):
        model.load_state_dict(dict(checkpoint))
    return model


def warm_from(model, case: Case, as_saved=copy.copy, **options):
    """A model that starts as in the trainer, with the checkpoint's description of positions."""
    ours = tiny.fresh(case, seed=2, **options)
    state = {"model": dict(model.state_dict()), "cfg": {"model": as_saved(model.args)}}
    with warm_start.checkpoint_loading(ours):
        warm_start.compare_descriptions("checkpoint.pt", state)
        ours.load_state_dict(state["model"])
    return ours


@torch.no_grad()
def check_warm_start(case: Case) -> None:
    """With its positions at the input kept, a model starts as the one that it comes from."""
    theirs = stock_roberta()
    case = case.but(position_input="learned") if case.kind.in_attention else case
    ours = warm(case, theirs.state_dict())
    for left_pad in (True, False):
        source = padded(SOURCES, left_pad)
        real = source.ne(PAD)
        segments = tiny.segments_of(ours, SOURCES, left_pad)
        close(ours(source, segments=segments)[0][real], theirs(source)[0][real], **TOLERANCE)


KEEPS_INPUT = [
    case
    for case in FIRST + FIRST_BERTS
    # compressed keys never equal another model's keys: see attention/test_compressed.py
    if case.scheme == "learned" or (case.kind.in_attention and not case.kind.compressed)
    # a fixed score, and a score that can't be zero, change the outputs
    if case.scheme == "learned" or tiny.has_parameters(case.scheme)
    if case.kind.can_be_zero
]


@tiny.each(KEEPS_INPUT)
def test_a_warm_start_from_stock_roberta_changes_nothing_yet(case):
    check_warm_start(case)


@torch.no_grad()
def check_new_positions(case: Case) -> None:
    """A model that gets positions, at the input as well, starts as the one without any."""
    theirs = tiny.model_of(Case("none", family="roberta"))
    case = case.but(position_input="learned") if case.kind.in_attention else case
    ours = warm(case, theirs.state_dict())
    close(tiny.logits(ours), tiny.logits(theirs), **TOLERANCE)


@tiny.each(KEEPS_INPUT)
def test_a_warm_start_from_a_model_without_positions_changes_nothing_yet(case):
    check_new_positions(case)


def check_learning(case: Case) -> None:
    model = warm(case, stock_roberta().state_dict()).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):  # TUPE's positions have no gradient as long as U^K is zero
        gradients = tiny.gradients(model, tiny.some_loss(tiny.logits(model)))
        for name, parameter in model.named_parameters():
            parameter.grad = gradients.get(name)
        optimizer.step()
    for name in tiny.position_parameters(model):
        # KERPLE's r2 is nothing to heads that would rather have an r1 below 0, which counts as 0
        if not name.endswith(("pos_k_linear.bias", "positions.r2")):
            assert float(gradients[name].abs().max()) > 0, name


@tiny.each([case for case in FIRST + FIRST_BERTS if case.kind.in_attention])
def test_after_a_warm_start_every_new_parameter_learns(case):
    check_learning(case)


def test_a_warm_start_tells_what_it_did(caplog):
    with caplog.at_level(logging.INFO, "diet_fairseq"):
        warm(Case("diet_rel", family="bert"), stock_roberta().state_dict())
    assert "warm start: " in caplog.text
    assert "encoder.sentence_encoder.layers.*.self_attn.positions.weight" in caplog.text
    assert "not loaded: encoder.sentence_encoder.embed_positions.weight" in caplog.text


@pytest.mark.parametrize(("scheme", "name"), [("fox", "Fox"), ("pope", "Pope"), ("t5", None)])
def test_a_warm_start_names_positions_that_cannot_begin_at_zero(caplog, scheme, name):
    with caplog.at_level(logging.WARNING, "diet_fairseq"):
        warm(Case(scheme, family="roberta"), stock_roberta().state_dict())
    expected = [
        f"the position term of {name} can't be zero and learn: before training, the model computes "
        "another function than the checkpoint"
    ]
    assert [record.getMessage() for record in caplog.records] == (expected if name else [])


def test_a_warm_start_between_our_own_encoders_keeps_the_positions():
    roberta = tiny.model_of(Case("diet_abs", family="roberta"))
    bert = warm(Case("diet_abs", family="bert"), roberta.state_dict())
    close(tiny.encoded(bert, SOURCES), tiny.encoded(roberta, SOURCES), **TOLERANCE)


IN_ATTENTION = [
    case
    for case in FIRST
    if case.kind.in_attention and not case.kind.compressed and tiny.has_parameters(case.scheme)
    if case.kind.can_be_zero
]


def own_names(case: Case) -> set[str]:
    """Parameters of the scheme alone, by name."""
    return set(tiny.position_parameters(tiny.model_of(case)))


@torch.no_grad()
@pytest.mark.parametrize("before", IN_ATTENTION, ids=str)
def test_a_warm_start_across_schemes_keeps_all_but_the_positions(before):
    theirs = tiny.model_to_change(before)
    for scheme in tiny.schemes_in(theirs).values():
        scheme.zero()
    others = [case for case in IN_ATTENTION if not own_names(case) & own_names(before)]
    assert len(others) > len(IN_ATTENTION) / 2
    for case in others[IN_ATTENTION.index(before) % 3 :: 3]:  # together they meet every scheme
        ours = warm(case, theirs.state_dict())
        close(tiny.logits(ours), tiny.logits(theirs), msg=f"{before} -> {case}", **TOLERANCE)


def test_a_warm_start_from_another_scheme_has_its_own_gain():
    ours = warm(
        Case("diet_abs", family="roberta"), tiny.model_of(Case("t5", family="roberta")).state_dict()
    )
    expected = tiny.fresh(Case("diet_abs", family="roberta"))
    [scheme], [built] = (tiny.schemes_in(model).values() for model in (ours, expected))
    assert scheme.gain == built.gain != 30


def of_before(args):
    """The options of a checkpoint that has no description yet."""
    return {name: value for name, value in vars(args).items() if name != "position_description"}


#: two models whose parameters have the same names, and what else differs
UNLIKE = {
    "untied": (
        Case("tupe_a", family="roberta").but(position_untie_cls="no"),
        Case("tupe_a", family="roberta").but(position_untie_cls="official"),
        "first row 0 instead of 1",
    ),
    "tied": (
        Case("tupe_a", family="bert").but(position_untie_cls="paper"),
        Case("tupe_a", family="bert").but(position_untie_cls="no"),
        "first row 1 instead of 0",
    ),
    "untied otherwise": (
        Case("tupe_r", family="roberta").but(position_untie_cls="paper"),
        Case("tupe_r", family="roberta").but(position_untie_cls="official"),
        "untie cls paper instead of official",
    ),
    "free": (
        Case("tupe_free", family="roberta").but(position_untie_cls="no"),
        Case("tupe_free", family="roberta").but(position_untie_cls="official"),
        "untie cls False instead of True",
    ),
    "all products": (
        Case("bert_ad", family="roberta"),
        Case("tupe_a", family="roberta").but(position_untie_cls="no"),
        "scheme bert_ad instead of tupe_a",
    ),
    "compressed": (
        Case("diet_abs_lin", family="roberta"),
        Case("diet_abs", family="roberta"),
        "scheme diet_abs_lin instead of diet_abs",
    ),
    "buckets": (
        Case("t5", family="roberta"),
        Case("t5", family="roberta").but(position_max_distance=64),
        "max distance 128 instead of 64",
    ),
    "normalised": (
        Case("tupe_a", family="roberta"),
        Case("tupe_a", family="roberta").but(position_no_layer_norm=True),
        "layer norm True instead of False",
    ),
    "translation": (
        Case("tupe_a").but(position_untie_cls="no"),
        Case("tupe_a").but(position_untie_cls="paper"),
        "first row 0 instead of 1",
    ),
    "offsets": (
        Case("diet_rel").but(position_sharing="layer"),
        Case("t5"),
        "scheme diet_rel instead of t5",
    ),
}


@torch.no_grad()
def check_meaning(name: str) -> None:
    """Positions that mean something else are left out; all else computes what it did."""
    before, now, _ = UNLIKE[name]
    theirs = tiny.model_to_change(before)
    for as_saved in (copy.copy, of_before):
        ours = warm_from(theirs, now, as_saved)
        fresh = tiny.fresh(now, seed=2)
        for scheme in tiny.schemes_in(fresh).values():
            scheme.zero()
        positions, zero = tiny.position_parameters(ours), tiny.position_parameters(fresh)
        assert all(torch.equal(positions[name], value) for name, value in zero.items())
    if not before.kind.compressed:
        for scheme in tiny.schemes_in(theirs).values():
            scheme.zero()
        close(tiny.logits(ours), tiny.logits(theirs), **TOLERANCE)


@pytest.mark.parametrize("name", UNLIKE)
def test_positions_of_another_meaning_are_not_taken_and_the_log_says_why(name, caplog):
    with caplog.at_level(logging.WARNING, "diet_fairseq"):
        check_meaning(name)
    why = f"because they were trained with other options ({UNLIKE[name][2]})"
    assert why in caplog.text


RESCALED = [
    Case(scheme, family=family)
    for family in ("transformer", "roberta")
    for scheme in ("tupe_a", "tupe_r")
] + [Case("tupe_a").but(position_cross_attention=True)]


@torch.no_grad()
def check_scale(case: Case) -> None:
    """All scores stay the same from a model with TUPE's rescaling to one without, and back."""
    for before, now in ((False, True), (True, False)):
        theirs = tiny.model_to_change(case.but(position_no_rescale=before))
        ours = warm_from(theirs, case.but(position_no_rescale=now))
        close(tiny.logits(ours), tiny.logits(theirs), **TOLERANCE)
        assert [s.score_terms for s in tiny.schemes_in(ours).values()] == [
            1 if now else 2 for _ in tiny.schemes_in(ours)
        ]


@tiny.each(RESCALED)
def test_a_warm_start_with_another_scale_keeps_the_scores_of_positions(case):
    check_scale(case)


@torch.no_grad()
def check_translation_start(case: Case) -> None:
    """A translation model with positions in its heads starts as the stock one."""
    theirs = tiny.stock()
    ours = warm(case.but(position_input="sinusoidal"), theirs.state_dict())
    close(tiny.logits(ours), tiny.logits(theirs), **TOLERANCE)


@tiny.each(
    [
        case
        for case in [
            *tiny.first_of_each_scheme(tiny.TRANSLATION),
            Case("tupe_a").but(position_cross_attention=True),
        ]
        if case.kind.in_attention and tiny.has_parameters(case.scheme) and case.kind.can_be_zero
    ]
)
def test_a_warm_start_from_stock_translation_changes_nothing_yet(case):
    check_translation_start(case)


@tiny.each(FIRST + tiny.first_of_each_scheme(tiny.TRANSLATION))
def test_a_checkpoint_of_the_same_options_is_taken_as_it_is(case, caplog):
    model = tiny.model_of(case)
    with caplog.at_level(logging.INFO, "diet_fairseq"):
        loaded = warm_from(model, case).state_dict()
    assert "not loaded" not in caplog.text
    for name, value in model.state_dict().items():
        assert torch.equal(loaded[name], value), name


def test_the_log_names_other_positions_at_the_input(caplog):
    before, now = (Case("diet_rel").but(position_input=i) for i in ("sinusoidal", "none"))
    with caplog.at_level(logging.WARNING, "diet_fairseq"):
        warm_from(tiny.model_of(before), now)
    assert "the checkpoint has --position-input sinusoidal, but this model has none" in caplog.text


SCALED = [
    Case("tupe_a", family="roberta"),
    Case("tupe_a", family="roberta").but(position_no_rescale=True),
    Case("tupe_free", family="roberta"),
    Case("bert_ad", family="roberta"),
]


@torch.no_grad()
@tiny.each(SCALED)
def test_a_warm_start_out_of_tupe_keeps_the_scale_of_the_content(case):
    tupe = tiny.model_to_change(case)
    for scheme in tiny.schemes_in(tupe).values():
        scheme.zero()
    plain = warm(Case("none", family="roberta"), tupe.state_dict())
    close(tiny.logits(plain), tiny.logits(tupe), **TOLERANCE)


def test_a_checkpoint_of_another_scale_is_refused():
    bert_ad = tiny.model_of(Case("bert_ad", family="roberta"))
    tupe_a = tiny.fresh(Case("tupe_a", family="roberta").but(position_untie_cls="no"))
    for model, source in ((tupe_a, bert_ad), (bert_ad, tupe_a)):
        with pytest.raises(RuntimeError, match=r"positions\.terms"):
            model.load_state_dict(source.state_dict())


WIDE = {"position_window": 15, "position_layers": "lg"}  # as wide as the longest input
#: a model, and a model that starts from it and computes the same with scores of zero
HYBRIDS = {
    **{
        f"{scheme}, {sharing}": (
            Case(scheme, family=family).but(position_sharing=sharing),
            Case(scheme, family=family).but(position_sharing=sharing, **WIDE, **options),
        )
        for scheme, family, options in [
            ("diet_rel", "roberta", {}),
            ("t5", "transformer", {"position_global_scheme": "none"}),
            ("diet_rel", "roberta", {"position_global_scheme": "diet_abs"}),
            ("tupe_a", "transformer", {"position_global_scheme": "t5"}),
            ("tupe_a", "roberta", {"position_global_scheme": "none"}),
        ]
        for sharing in ("none", "layer")
    },
    "two hybrids": (
        Case("t5").but(position_layers="gl", position_global_scheme="diet_rel"),
        Case("tupe_a").but(position_layers="lg", position_global_scheme="diet_rel"),
    ),
}


@torch.no_grad()
def check_hybrid(name: str) -> None:
    for before, now in (HYBRIDS[name], HYBRIDS[name][::-1]):
        theirs = tiny.model_to_change(before)
        schemes = tiny.schemes_in(theirs)
        for scheme in schemes.values():
            scheme.zero()
        ours = warm_from(theirs, now)
        close(tiny.logits(ours), tiny.logits(theirs), msg=f"{before} -> {now}", **TOLERANCE)


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_warm_start_to_layers_of_two_kinds_and_back_changes_nothing_yet(name):
    check_hybrid(name)


@torch.no_grad()
def check_kept_layers(names: tuple[str, str, str]) -> None:
    """Layers whose scheme stays keep its parameters, and no other layer keeps them."""
    scheme, global_scheme, sharing = names
    uniform = Case(scheme, family="roberta").but(position_sharing=sharing)
    hybrid = uniform.but(position_layers="lg", position_global_scheme=global_scheme)
    for before, now in ((uniform, hybrid), (hybrid, uniform)):
        theirs = tiny.model_of(before)
        try:
            ours = warm_from(theirs, now)
        except RuntimeError as error:  # a parameter of another meaning has another shape
            raise AssertionError from error
        old, new = (tiny.position_parameters(model) for model in (theirs, ours))
        kept = [name for name in new if name in old and old[name].shape == new[name].shape]
        kept = [name for name in kept if torch.equal(old[name], new[name])]
        assert kept == [name for name in new if "layers.1" not in name and "global" not in name]


#: schemes whose parameters have the same names and shapes, but other meanings
ALIKE = ("tupe_a", "bert_ad", "none")


@pytest.mark.parametrize(
    "names", [ALIKE, *(("diet_rel", "diet_abs", sharing) for sharing in ("none", "head", "layer"))]
)
def test_layers_with_the_same_scheme_keep_it_in_a_warm_start(names):
    check_kept_layers(names)


def test_a_part_of_the_local_layers_is_not_taken_for_a_start_from_elsewhere():
    case = Case("diet_rel", family="roberta").but(**WIDE, encoder_layers=4)
    theirs = tiny.fresh(case)
    lost = "encoder.sentence_encoder.layers.2.self_attn.positions.weight"
    with pytest.raises(RuntimeError, match=re.escape(lost)):
        warm(case, {n: t for n, t in theirs.state_dict().items() if n != lost})


def test_a_resumed_run_with_other_windows_is_told(caplog):
    theirs = tiny.model_of(Case("t5", family="roberta").but(position_window=3))
    state = {"model": {}, "cfg": {"model": theirs.args}}
    ours = tiny.fresh(Case("t5", family="roberta"))
    with warm_start.checkpoint_loading(ours, starts=False):
        warm_start.compare_descriptions("checkpoint.pt", state)
    assert "trained with other position options (window 3 instead of None)" in caplog.text


MISFITS = {
    "more positions": {"max_positions": 32},
    "other sizes": {"encoder_ffn_embed_dim": 8},
    "more layers": {"encoder_layers": 3},
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_warm_start_from_a_model_of_another_shape_is_refused(misfit):
    stock = tiny.stock("roberta", **MISFITS[misfit])
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict"):
        warm(Case("learned", family="roberta"), stock.state_dict())


def test_a_part_of_a_scheme_is_not_taken_for_a_start_from_elsewhere():
    state = tiny.model_of(Case("diet_rel", family="roberta")).state_dict()
    lost = "encoder.sentence_encoder.layers.1.self_attn.positions.weight"
    with pytest.raises(RuntimeError, match=re.escape(lost)):
        warm(Case("diet_rel", family="roberta"), {n: t for n, t in state.items() if n != lost})


def test_without_the_flag_other_positions_are_refused():
    model = tiny.fresh(Case("diet_rel", family="roberta"))
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict"):
        model.load_state_dict(stock_roberta().state_dict())


MUTANTS: mutants.Table = [
    (check_warm_start, mutants.a_start_with_random_positions, "tupe_a-roberta"),
    (check_new_positions, mutants.a_start_with_random_positions, "tupe_a-roberta"),
    (check_learning, mutants.a_zero_that_learns_nothing, "fire-roberta"),
    (check_translation_start, mutants.content_that_keeps_its_scale, "tupe_a"),
    (check_meaning, mutants.positions_compared_by_shapes_alone, "untied"),
    (check_hybrid, mutants.every_layer_has_the_scale_of_local_layers, "tupe_a, none"),
    (check_kept_layers, mutants.kinds_of_layers_are_not_compared, ALIKE),
    (check_scale, mutants.positions_that_keep_their_scale, "tupe_a-roberta"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
