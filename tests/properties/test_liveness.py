"""The order of words matters in every layer, and every parameter of a scheme learns."""

import torch

from tests.support import mutants, tiny
from tests.support.attentions import attentions
from tests.support.tiny import TOLERANCE, Case

close = torch.testing.assert_close
ORDER = torch.tensor([3, 0, 5, 1, 7, 2, 6, 4])


@torch.no_grad()
def check_order(case: Case) -> None:
    """Words in another order give other outputs, but for models without positions.

    Of encoder and decoder; the latter reads a whole sentence, or else its mask would tell order.
    """
    model = tiny.model_of(case)
    (words,) = tiny.sentences(8, seed=10)
    knows_order = case.scheme != "none" or case.is_hybrid

    def encode():
        return tiny.encoded(model, [words]), tiny.encoded(model, [words[ORDER]])

    def decode():
        return (
            tiny.logits(model, [words], [target], full_context_alignment=True)
            for target in (words, words[ORDER])
        )

    for read in (encode,) if tiny.is_encoder(model) else (encode, decode):
        as_it_was, permuted = read()
        moved = tiny.difference(permuted, as_it_was[ORDER])
        assert moved > tiny.VISIBLE if knows_order else moved < TOLERANCE["atol"]


@torch.no_grad()
def check_every_layer(case: Case) -> None:
    """Each attention on its own knows the order of its input."""
    x = tiny.vectors(1, 8, tiny.DIM)
    no_padding = torch.zeros(1, 8, dtype=torch.bool)
    modules = attentions(tiny.model_of(case))
    places = tiny.LAYERS * (3 if case.option("position_cross_attention") else 2)
    if case.family != "transformer":
        places = tiny.LAYERS
    assert len(modules) == places
    for attention in modules:
        assert attention.scheme is not None, attention.name
        layout = attention.layout(no_padding, full_context=True)
        moved = tiny.difference(attention(x[:, ORDER], layout), attention(x, layout)[:, ORDER])
        assert moved > tiny.VISIBLE, attention.name


def check_gradients(case: Case) -> None:
    """Every position parameter has a gradient, but for those that softmax is blind to."""
    model = tiny.model_of(case)
    gradients = tiny.gradients(model, tiny.some_loss(tiny.logits(model)))
    for name in tiny.position_parameters(model):
        assert name in gradients, name
        largest = float(gradients[name].abs().max())
        if blind(case, name):
            assert largest < 1e-4, name
        else:
            assert largest > 1e-3, name


def blind(case: Case, name: str) -> bool:
    """TUPE's bias of keys adds the same to all scores of a query, unless some are reset."""
    tied = case.option("position_untie_cls") in (None, "no")
    return name.endswith("pos_k_linear.bias") and tied


@tiny.each(tiny.CASES)
def test_the_order_of_words_matters_wherever_there_are_positions(case):
    check_order(case)


@tiny.each([case for case in tiny.IN_ATTENTION if not case.is_hybrid])
def test_every_layer_knows_the_order_of_its_input(case):
    check_every_layer(case)


@tiny.each(tiny.IN_ATTENTION)
def test_every_position_parameter_learns(case):
    check_gradients(case)


MUTANTS: mutants.Table = [
    (check_order, mutants.no_layer_has_positions, "diet_rel"),
    (check_order, mutants.the_control_has_positions, "none"),
    (check_every_layer, mutants.the_decoder_has_no_positions, "diet_abs"),
    (check_gradients, mutants.scores_without_gradient, "t5"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
