"""A model may start from a checkpoint of one with other positions, and tells what it did."""

import logging
import re

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY

from diet_fairseq.stack import warm_start
from tests.support import mutants, tiny
from tests.support.tiny import PAD, SOURCES, TOLERANCE, Case, padded

close = torch.testing.assert_close
FIRST = tiny.first_of_each_scheme(tiny.ENCODERS)
FIRST_BERTS = tiny.first_of_each_scheme([c for c in tiny.ENCODERS if c.family == "bert"])


def stock_roberta():
    return tiny.stock("roberta")


def warm(case: Case, checkpoint, **options):
    model = tiny.fresh(case, seed=2, **options)
    with warm_start.starting(model):
        model.load_state_dict(dict(checkpoint))
    return model


@torch.no_grad()
def check_warm_start(case: Case) -> None:
    """With its positions at the input kept, a model starts as the one that it comes from."""
    theirs = stock_roberta()
    case = case.but(position_input="learned") if case.kind.in_attention else case
    ours = warm(case, theirs.state_dict())
    for left in (True, False):
        source = padded(SOURCES, left)
        real = source.ne(PAD)
        segments = tiny.segments_of(ours, SOURCES, left)
        close(ours(source, segments=segments)[0][real], theirs(source)[0][real], **TOLERANCE)


KEEPS_INPUT = [
    case
    for case in FIRST + FIRST_BERTS
    # compressed keys are no other model's from the start: see attention/test_compressed.py
    if case.scheme == "learned" or (case.kind.in_attention and not case.kind.compressed)
    # nor is a fixed score
    if case.scheme == "learned" or tiny.has_parameters(case.scheme)
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


@tiny.each([case for case in FIRST + FIRST_BERTS if case.kind.in_attention])
def test_after_a_warm_start_every_new_parameter_learns(case):
    model = warm(case, stock_roberta().state_dict()).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):  # TUPE's positions have no gradient as long as U^K is zero
        found = tiny.gradients(model, tiny.some_loss(tiny.logits(model)))
        for name, parameter in model.named_parameters():
            parameter.grad = found.get(name)
        optimizer.step()
    for name in tiny.position_parameters(model):
        if not name.endswith("pos_k_linear.bias"):
            assert float(found[name].abs().max()) > 0, name


def test_a_warm_start_tells_what_it_did(caplog):
    with caplog.at_level(logging.INFO, "diet_fairseq"):
        warm(Case("diet_rel", family="bert"), stock_roberta().state_dict())
    assert "starts from another model, of which" in caplog.text
    assert "encoder.sentence_encoder.layers.*.self_attn.positions.weight" in caplog.text
    assert "not taken: encoder.sentence_encoder.embed_positions.weight" in caplog.text


def test_a_warm_start_between_our_own_encoders_keeps_the_positions():
    roberta = tiny.model_of(Case("diet_abs", family="roberta"))
    bert = warm(Case("diet_abs", family="bert"), roberta.state_dict())
    close(tiny.encoded(bert, SOURCES), tiny.encoded(roberta, SOURCES), **TOLERANCE)


IN_ATTENTION = [
    case
    for case in FIRST
    if case.kind.in_attention and not case.kind.compressed and tiny.has_parameters(case.scheme)
]


def own_names(case: Case) -> set[str]:
    """Parameters of the scheme alone, by name."""
    return set(tiny.position_parameters(tiny.model_of(case)))


@torch.no_grad()
@pytest.mark.parametrize("before", IN_ATTENTION, ids=str)
def test_a_warm_start_from_any_other_scheme_computes_what_it_did_without_positions(before):
    theirs = tiny.own(before)
    for scheme in tiny.schemes_in(theirs).values():
        scheme.zero()
    others = [case for case in IN_ATTENTION if not own_names(case) & own_names(before)]
    assert len(others) > len(IN_ATTENTION) / 2
    for case in others:
        ours = warm(case, theirs.state_dict())
        close(tiny.logits(ours), tiny.logits(theirs), msg=f"{before} -> {case}", **TOLERANCE)


def test_a_warm_start_from_another_scheme_has_its_own_gain():
    ours = warm(
        Case("diet_abs", family="roberta"), tiny.model_of(Case("t5", family="roberta")).state_dict()
    )
    expected = tiny.fresh(Case("diet_abs", family="roberta"))
    [one], [other] = (tiny.schemes_in(model).values() for model in (ours, expected))
    assert one.gain == other.gain != 30


SCALED = [
    Case("tupe_a", family="roberta"),
    Case("tupe_a", family="roberta").but(position_no_rescale=True),
    Case("tupe_free", family="roberta"),
    Case("bert_ad", family="roberta"),
]


@torch.no_grad()
@tiny.each(SCALED)
def test_a_warm_start_out_of_tupe_keeps_the_scale_of_the_content(case):
    tupe = tiny.own(case)
    for scheme in tiny.schemes_in(tupe).values():
        scheme.zero()
    plain = warm(Case("none", family="roberta"), tupe.state_dict())
    close(tiny.logits(plain), tiny.logits(tupe), **TOLERANCE)


def test_after_a_warm_start_the_model_s_own_checkpoints_load_as_they_are():
    model = warm(Case("tupe_a", family="roberta"), stock_roberta().state_dict())
    again = warm(Case("tupe_a", family="roberta"), model.state_dict())
    assert torch.equal(tiny.logits(again), tiny.logits(model))


def test_a_checkpoint_of_another_scale_is_no_other_scheme_s():
    bert_ad = tiny.model_of(Case("bert_ad", family="roberta"))
    tupe_a = tiny.fresh(Case("tupe_a", family="roberta").but(position_untie_cls="no"))
    for model, other in ((tupe_a, bert_ad), (bert_ad, tupe_a)):
        with pytest.raises(RuntimeError, match=r"positions\.terms"):
            model.load_state_dict(other.state_dict())


MISFITS = {
    "more positions": {"max_positions": 32},
    "other sizes": {"encoder_ffn_embed_dim": 8},
    "more layers": {"encoder_layers": 3},
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_warm_start_from_a_model_of_another_shape_is_refused(misfit):
    other = tiny.stock("roberta", **MISFITS[misfit])
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict"):
        warm(Case("learned", family="roberta"), other.state_dict())


def test_a_part_of_a_scheme_is_not_taken_for_a_start_from_elsewhere():
    own = tiny.model_of(Case("diet_rel", family="roberta")).state_dict()
    lost = "encoder.sentence_encoder.layers.1.self_attn.positions.weight"
    with pytest.raises(RuntimeError, match=re.escape(lost)):
        warm(Case("diet_rel", family="roberta"), {n: t for n, t in own.items() if n != lost})


def test_without_the_flag_other_positions_are_refused():
    model = tiny.fresh(Case("diet_rel", family="roberta"))
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict"):
        model.load_state_dict(stock_roberta().state_dict())


def test_a_checkpoint_with_another_vocabulary_is_refused():
    words = Dictionary()
    words.add_symbol("word")
    args = tiny.arguments(Case("diet_rel", family="bert"))
    task = tiny.Namespace(source_dictionary=words)
    small = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
    with pytest.raises(RuntimeError, match=r"embed_tokens.weight: .*\[28, 16\].*\[5, 16\]"):
        small.load_state_dict(tiny.model_of(Case("diet_rel", family="bert")).state_dict())


CHANGED = {
    "other segments": {"num_segments": 3},
    "other heads": {"encoder_attention_heads": 4},
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_checkpoint_with_other_segments_or_heads_is_refused(change):
    case = Case("diet_rel", family="bert")
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict"):
        tiny.fresh(case, **CHANGED[change]).load_state_dict(tiny.model_of(case).state_dict())


MUTANTS: mutants.Table = [
    (check_warm_start, mutants.a_start_with_random_positions, "tupe_a-roberta"),
    (check_warm_start, mutants.content_that_keeps_its_scale, "tupe_a-roberta"),
    (check_warm_start, mutants.a_start_with_random_positions, "bert_ad-roberta"),
    (check_new_positions, mutants.a_start_with_random_positions, "tupe_a-roberta"),
    (check_new_positions, mutants.a_start_with_random_rows_at_the_input, "learned-roberta"),
]


@mutants.each(MUTANTS)
def test_warm_start_catches(check, mutant, case):
    mutants.assert_caught(check, mutant, case)
