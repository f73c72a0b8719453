"""Models give the numbers of fairseq's own models, of no bias, and of the papers' equations."""

import pytest
import torch
from fairseq.modules import LayerDropModuleList

from tests.support import mutants, tiny
from tests.support.attentions import attentions
from tests.support.oracles import (
    IN_THE_EQUATION,
    ORACLES,
    Compressed,
    WithSegments,
    attention,
    oracle_of,
)
from tests.support.tiny import PAD, SIDES, SOURCES, TARGETS, TOLERANCE, Case, padded

close = torch.testing.assert_close

# --- fairseq's own transformer ---------------------------------------------------------------

STOCK: dict[str, dict] = {
    "none": {"no_token_positional_embeddings": True},
    "sinusoidal": {},
    "learned": {"encoder_learned_pos": True, "decoder_learned_pos": True},
}
#: what fairseq's RoBERTa must be told for the same
STOCK_ROBERTA: dict[str, dict] = {
    "none": {"no_token_positional_embeddings": True},
    "sinusoidal": {"encoder_learned_pos": False},
    "learned": {},
}
#: options of fairseq's RoBERTa; models/test_fairseq_options.py has those of its transformer
OPTIONS: dict[str, dict] = {
    "as_it_is": {},
    "pre_norm": {"encoder_normalize_before": True},
    "other_activation": {"activation_fn": "relu"},
}
STOCK_CASES = [c for c in tiny.UNIFORM if c.scheme in STOCK and c.family != "bert"]
BOTH = [
    (case, name)
    for case in STOCK_CASES
    for name in (OPTIONS if case == Case("learned", family="roberta") else ("as_it_is",))
]


def pair(case: Case, option: str = "as_it_is"):
    """Stock fairseq's model and ours with its parameters, loaded strictly, in both directions."""
    table = STOCK_ROBERTA if case.family == "roberta" else STOCK
    theirs = tiny.stock(case.family, **table[case.scheme], **OPTIONS[option])
    ours = tiny.copy_of(theirs, case, **OPTIONS[option])
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def check_stock(case: Case, option: str = "as_it_is") -> None:
    ours, theirs = pair(case, option)
    for left_source, left_target in SIDES:
        out, expected = (
            tiny.logits(model, left_source=left_source, left_target=left_target)
            for model in (ours, theirs)
        )
        close(out, expected, **TOLERANCE)
        tiny.assert_same(
            tiny.gradients(ours, tiny.some_loss(out)),
            tiny.gradients(theirs, tiny.some_loss(expected)),
        )


@pytest.mark.parametrize(("case", "option"), BOTH, ids=[f"{c}-{o}" for c, o in BOTH])
def test_input_positions_alone_are_fairseq_s_own_model(case, option):
    check_stock(case, option)


def test_layers_dropped_in_training_are_those_that_fairseq_drops():
    ours, theirs = pair(Case("sinusoidal"))
    outs = []
    for model in (ours, theirs):
        model.train()
        model.encoder.layers = LayerDropModuleList(0.5, model.encoder.layers)
        model.decoder.layers = LayerDropModuleList(0.5, model.decoder.layers)
        torch.default_generator.manual_seed(5)
        outs.append(torch.stack([tiny.logits(model) for _ in range(8)]))
    assert tiny.difference(outs[0][0], outs[0]) > tiny.VISIBLE
    close(outs[0], outs[1], **TOLERANCE)


def test_the_model_returns_what_fairseq_s_model_returns():
    ours, theirs = pair(Case("sinusoidal"))
    source, target = padded(SOURCES, True), padded(TARGETS, False)
    for options in (
        {"return_all_hiddens": True},
        {"alignment_layer": 0, "alignment_heads": 1},
        {"full_context_alignment": True},
        {"features_only": True},
    ):
        encoder_options = {"return_all_hiddens": options.get("return_all_hiddens", False)}
        results = []
        for model in (ours, theirs):
            encoder_out = model.encoder(source, (source != PAD).sum(1), **encoder_options)
            decoder_options = {k: v for k, v in options.items() if k not in encoder_options}
            out, extra = model.decoder(target, encoder_out=encoder_out, **decoder_options)
            results.append((encoder_out, out, extra))
        (our_encoder, our_out, our_extra), (their_encoder, their_out, their_extra) = results
        assert our_encoder.keys() == their_encoder.keys()
        read = source.ne(PAD).T  # (S, B): nobody reads what comes out at padding
        for name, values in their_encoder.items():
            if not values or values[0] is None:
                continue
            for our_value, their_value in zip(our_encoder[name], values, strict=True):
                of_tokens = name in ("encoder_out", "encoder_states")
                close(
                    our_value[read] if of_tokens else our_value,
                    their_value[read] if of_tokens else their_value,
                    **TOLERANCE,
                )
        real = target.ne(PAD)
        close(our_out[real], their_out[real], **TOLERANCE)
        close(our_extra["attn"][0][real], their_extra["attn"][0][real], **TOLERANCE)
        assert len(our_extra["inner_states"]) == len(their_extra["inner_states"])
        for our_value, their_value in zip(
            our_extra["inner_states"], their_extra["inner_states"], strict=True
        ):
            close(our_value.transpose(0, 1)[real], their_value.transpose(0, 1)[real], **TOLERANCE)


# --- a bias of zero --------------------------------------------------------------------------

LEARNING = {
    case.scheme
    for case in tiny.first_of_each_scheme(tiny.IN_ATTENTION)
    if tiny.has_parameters(case.scheme) and case.kind.can_be_zero
}


def check_zero_bias(case: Case) -> None:
    model = tiny.model_to_change(case)
    with torch.no_grad():
        for scheme in tiny.schemes_in(model).values():
            scheme.zero()
    at_the_input = case.option("position_input")
    segments = "input" if case.option("segment_scheme") == "input" else "none"
    options = (("segment_scheme", segments),) if case.family == "bert" else ()
    plain = tiny.model_to_change(Case(at_the_input, options, case.family))
    if case.kind.compressed:
        compressing = (o for o in case.options if o[0].startswith("projection"))
        options = (*options, ("position_input", at_the_input), *compressing)
        plain = tiny.model_to_change(Case("linformer", options, case.family))
    schemes = tuple(f"{name}." for name in tiny.schemes_in(model))
    state = model.state_dict()
    plain.load_state_dict({k: v for k, v in state.items() if not k.startswith(schemes)})
    for inside, outside in zip(attentions(model), _same(model, plain), strict=True):
        if inside.scheme is not None:
            # the content score takes its share of the scale
            outside.q_proj.weight.data *= inside.scheme.score_terms**-0.5
            outside.q_proj.bias.data *= inside.scheme.score_terms**-0.5
    close(tiny.logits(model), tiny.logits(plain), **TOLERANCE)


def _same(model, plain):
    """The attentions of ``plain`` at the places where ``model`` has positional ones."""
    modules = dict(plain.named_modules())
    return [modules[positional.name] for positional in attentions(model)]


@tiny.each([case for case in tiny.of_scheme(*LEARNING) if not case.is_hybrid])
def test_a_zero_bias_is_no_bias(case):
    check_zero_bias(case)


# --- the papers' equations -------------------------------------------------------------------


def check_equation(case: Case) -> None:
    """Every attention equals the papers' loops at the real tokens of a padded batch."""
    if case.scheme not in ORACLES:
        pytest.skip(f"tests/support/oracles.py has no loops for {case.scheme}")
    names = (f"position_{name}" for name in IN_THE_EQUATION)
    options = {name: case.option(name) for name in names if case.option(name) is not None}
    for wrapper in attentions(tiny.model_of(case)):
        if wrapper.name.endswith("layers.1.self_attn") and wrapper.shared:
            continue  # the same scheme as in layer 0
        for left_pad, full_context in [(True, False), (False, wrapper.causal)]:
            padding = padded(SOURCES, left_pad).eq(PAD)
            segments = None
            if case.family != "transformer":
                segments = tiny.segments_of(tiny.model_of(case), SOURCES, left_pad)
            layout = wrapper.layout(padding, full_context, segments)
            x = tiny.vectors(*padding.shape, tiny.DIM)
            with torch.no_grad():
                positions = oracle_of(case.scheme, wrapper.scheme, options)
                if case.kind.compressed:
                    positions = Compressed(positions, *wrapper.matrices)
                for row, (out, inputs, real) in enumerate(
                    zip(wrapper(x, layout), x, ~padding, strict=True)
                ):
                    oracle = positions
                    if wrapper.segments is not None:
                        oracle = WithSegments(positions, wrapper.segments, segments[row, real])
                    tokens = inputs[real].double()
                    expected = attention(tokens, tokens, wrapper.module, oracle, layout.causal)
                    close(out[real], expected.float(), **TOLERANCE)


@tiny.each(tiny.UNIFORM, own_part=1, all_schemes=True)
def test_attention_is_the_equation_of_the_paper(case):
    check_equation(case)


MUTANTS: mutants.Table = [
    (check_stock, mutants.padding_is_seen, "sinusoidal"),
    (check_zero_bias, mutants.content_that_keeps_the_whole_scale, "tupe_a"),
    (check_equation, mutants.offsets_with_the_other_sign, "t5"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
