"""Layers that are given the real tokens alone compute for them what they would beside padding."""

import weakref
from unittest import mock

import pytest
import torch
from torch.testing import assert_close as close

from diet_fairseq.attention import packing
from diet_fairseq.attention.packing import Packing
from diet_fairseq.positions.layout import Layout
from tests.support import mutants, tiny
from tests.support.tiny import PAD, SIDES, SOURCES, TOLERANCE, Case, padded

FIRST = tiny.first_of_each_scheme(tiny.TRANSLATION) + tiny.first_of_each_scheme(tiny.ENCODERS)
ALWAYS, NEVER = 0.0, 2.0


def packed(share: float) -> mock._patch:
    return mock.patch.object(packing, "MIN_PADDING_SHARE", share)


def check_packing(case: Case) -> None:
    """Outputs and gradients are the same with and without packing; dropout is 0."""
    model = tiny.model_to_change(case).train()
    for left_source, left_target in SIDES:
        results = []
        for share in (NEVER, ALWAYS):
            with packed(share):
                out = tiny.logits(model, left_source=left_source, left_target=left_target)
                results.append((out, tiny.gradients(model, tiny.some_loss(out))))
        (expected, expected_gradients), (out, gradients) = results
        close(out, expected, **TOLERANCE)
        tiny.assert_same_gradients(gradients, expected_gradients)


@tiny.each(FIRST)
def test_packed_tokens_give_the_same_forward_and_backward(case):
    check_packing(case)


@pytest.mark.parametrize("left_pad", [False, True])
def test_packing_and_unpacking_lose_nothing_and_leave_padding_zero(left_pad):
    tokens = padded(SOURCES, left_pad)
    real = tokens.ne(PAD)  # (B, T)
    with packed(ALWAYS):
        packing = Packing.from_layout(Layout.of_self_attention(~real))
    x = tiny.vectors(tokens.size(1), len(tokens), 4)  # (T, B, d)
    assert packing.pack(x).shape == (real.sum(), 1, 4)
    assert torch.equal(packing.unpack(packing.pack(x)), x * real.T.unsqueeze(2))


def lengths_of_layers(model, sources):
    seen = []
    hooks = [
        module.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[:2]))
        for name, module in model.named_modules()
        if name.endswith("fc1") and "decoder" not in name
    ]
    tiny.logits(model, sources, tiny.shifted(sources))
    for hook in hooks:
        hook.remove()
    return set(seen)


@pytest.mark.parametrize("family", ["transformer", "roberta", "bert"])
def test_layers_get_real_tokens_alone_from_a_fifth_of_padding_on(family):
    model = tiny.fresh(Case("none", family=family))
    assert lengths_of_layers(model, tiny.sentences(5, 10, 10)) == {(10, 3)}
    assert lengths_of_layers(model, tiny.sentences(4, 10, 10)) == {(24, 1)}
    assert lengths_of_layers(model, tiny.sentences(10, 10)) == {(10, 2)}


def test_states_between_layers_are_fairseq_s():
    model = tiny.fresh(Case("diet_rel"))
    source = padded(SOURCES, False)
    encoder_out = model.encoder(source, return_all_hiddens=True)
    assert len(encoder_out["encoder_states"]) == tiny.LAYERS + 1
    shapes = {tuple(state.shape) for state in encoder_out["encoder_states"]}
    assert shapes == {(source.size(1), len(source), tiny.DIM)}


@pytest.mark.parametrize("family", ["transformer", "roberta"])
def test_states_between_layers_are_collected_on_request_only(family):
    model = tiny.fresh(Case("diet_rel", family=family), encoder_layers=5)
    stack = model.encoder.sentence_encoder if tiny.is_encoder(model) else model.encoder
    states, alive = [], []

    def count(_, __, out):
        state = out[0]
        alive.append(sum(reference() is not None for reference in states))
        states.append(weakref.ref(state))

    for layer in stack.layers:
        layer.register_forward_hook(count)
    with torch.no_grad():
        stack(padded(SOURCES, False))
    assert alive == [0, 1, 1, 1, 1]  # what a layer reads


MUTANTS: mutants.Table = [(check_packing, mutants.tokens_unpacked_to_the_front, "sinusoidal")]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
