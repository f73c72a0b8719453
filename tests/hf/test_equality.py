"""Every scheme in transformers gives the logits that it gives in fairseq."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch

from diet_fairseq.errors import UserError
from diet_fairseq.positions.gain import ScoreParameters
from tests.support import mutants, tiny

hf = pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")

from diet_fairseq.hf.convert import to_transformers  # noqa: E402
from diet_fairseq.hf.convert.configuration import fairseq_args  # noqa: E402
from diet_fairseq.hf.convert.from_transformers import load  # noqa: E402
from diet_fairseq.hf.convert.to_transformers import convert  # noqa: E402


@cache
def converted(case):
    """The model in transformers; what converting itself compares is compared below."""
    return convert(tiny.model_of(case)).model


def real(tokens):
    return tokens.ne(tiny.PAD)


def logits(model, left_source=True, left_target=False, **options):
    """(sum of lengths, vocabulary), as `tiny.logits`."""
    sources = tiny.padded(tiny.SOURCES, left_source)
    if model.config.is_encoder_decoder:
        targets = tiny.padded(tiny.TARGETS, left_target)
        out = model(input_ids=sources, decoder_input_ids=targets, **options)
        return out.logits[real(targets)]
    segments = None
    if pieces := model.config.type_vocab_size:
        stack = SimpleNamespace(sentence_encoder=SimpleNamespace(num_segments=pieces))
        segments = tiny.segments_of(SimpleNamespace(encoder=stack), tiny.SOURCES, left_source)
    return model(sources, token_type_ids=segments, **options).logits[real(sources)]


@torch.no_grad()
def assert_same(model, converted_model):
    for attention, left_padded in (("eager", True), ("sdpa", False)):
        converted_model.set_attn_implementation(attention)
        expected = tiny.logits(model, left_source=left_padded, left_target=not left_padded)
        actual = logits(converted_model, left_padded, not left_padded)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def check_logits(case):
    assert_same(tiny.model_of(case), converted(case))


@tiny.each(tiny.NO_BACKEND, all_schemes=True)
def test_logits_are_fairseq_s_with_padding_on_either_side(case):
    check_logits(case)


@torch.no_grad()
@tiny.each(tiny.first_of_each_scheme(tiny.ENCODERS))
def test_padding_may_lie_beyond_the_longest_input(case):
    model, pad = converted(case), tiny.PAD
    tokens = tiny.padded(tiny.SOURCES, False)  # (B, T)
    wide = torch.nn.functional.pad(tokens, (0, 2 * tiny.LIMIT), value=pad)
    actual, expected = (model(batch).logits[batch.ne(pad)] for batch in (wide, tokens))
    torch.testing.assert_close(actual, expected, **tiny.TOLERANCE)


def check_gains(case):
    """Exported gains are those of the parameters, whose version may not be that of the options."""
    model = tiny.model_to_change(case)
    for module in model.modules():
        if isinstance(module, ScoreParameters):
            module.gain *= 1.5
    assert_same(model, convert(model).model)


def check_file(case):
    """The file is enough to load the model, though it holds tied parameters once."""
    model = tiny.fresh(case, share_all_embeddings=True)
    export = convert(model)
    again = type(export.model)(export.model.config).eval()
    again.load_state_dict(export.tensors, strict=False)
    assert_same(model, again)


@pytest.mark.parametrize("case", ["diet_rel", "diet_abs-bert", "t5"])
def test_gains_are_those_of_the_checkpoint(case):
    check_gains(tiny.named(case))


def test_encoder_and_decoder_may_have_heads_of_different_width():
    """A default gain of `diet_abs` depends on the width."""
    model = tiny.fresh(tiny.named("diet_abs"), decoder_attention_heads=4)
    assert_same(model, convert(model).model)


@tiny.each([
    tiny.Case("t5").but(position_layers="gl", position_global_scheme="diet_abs"),
    tiny.Case("diet_rel", family="roberta").but(
        position_window=2, position_layers="lg", position_global_scheme="none"
    ),
])  # fmt: skip
def test_layers_of_two_kinds_have_the_gains_of_their_schemes(case):
    model = tiny.model_of(case)
    exported = convert(model).model
    assert_same(model, exported)
    fresh = type(exported)(exported.config)
    gains = [
        [part.gain for part in m.modules() if isinstance(part, ScoreParameters)]
        for m in (exported, fresh)
    ]
    assert gains[0] == gains[1]
    assert len({*gains[0]}) == (2 if case.scheme == "t5" else 1)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("diet_rel", "layers of the checkpoint have different gains: keep the model in fairseq"),
        ("diet_abs", "the exported model does not reproduce the checkpoint "),
    ],
)
def test_gains_that_differ_between_layers_are_refused(case, reason):
    model = tiny.model_to_change(tiny.named(case))
    scheme = next(part for part in model.modules() if isinstance(part, ScoreParameters))
    scheme.gain *= 1.5
    with pytest.raises(UserError, match=reason):
        convert(model)


@pytest.mark.parametrize("case", ["diet_rel", "tupe_a-bert"])
def test_the_file_holds_all_that_the_model_is(case):
    check_file(tiny.named(case))


LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}


@pytest.mark.parametrize(
    ("family", "options", "scheme"),
    [
        ("transformer", {"share_all_embeddings": True}, "sinusoidal"),
        ("transformer", {**LEARNED, "encoder_normalize_before": True}, "learned"),
        ("transformer", {"no_token_positional_embeddings": True}, "none"),
        ("roberta", {}, "learned"),
        ("roberta", {"untie_weights_roberta": True, "encoder_normalize_before": True}, "learned"),
    ],
)
def test_fairseq_s_own_models_are_ours_of_the_same_positions(family, options, scheme):
    model = tiny.stock(family, **options)
    converted_model = convert(model).model
    assert converted_model.config.position_scheme == scheme
    assert_same(model, converted_model)


def test_positions_of_two_kinds_are_refused():
    with pytest.raises(UserError) as error:
        convert(tiny.stock(encoder_learned_pos=True))
    assert str(error.value) == (
        "the encoder and the decoder have different positions (learned and sinusoidal), which "
        "models of this package lack: keep the model in fairseq"
    )


def test_an_electra_s_discriminator_is_an_encoder():
    model = tiny.from_arguments(tiny.complete("electra_tupe_r"))
    result = convert(model)  # compares the features
    assert type(result.model).__name__ == "DietEncoderModel"


@pytest.mark.parametrize("family", ["roberta", "bert", "electra"])
def test_narrow_embeddings_come_back(family):
    model = tiny.from_arguments(tiny.complete(f"{family}_t5", embedding_size=8))
    out, tensors = convert(model)
    back = tiny.from_arguments(fairseq_args(out.config))
    missing, unused = load(back, out.config, tensors)
    assert unused == []
    assert not missing or family == "electra"
    before, after = ((m, m.state_dict()) for m in (model.eval(), back.eval()))
    tokens = torch.randint(4, 9, (2, 7))
    with torch.no_grad():
        assert torch.equal(*(m(tokens, features_only=True)[0] for m, _ in (before, after)))
    if family != "electra":  # which comes back as a BERT, without its generator and heads
        assert before[1].keys() == after[1].keys()


MUTANTS: mutants.Table = [
    (check_logits, mutants.exported_positions_shifted_by_one, "diet_rel"),
    (check_gains, mutants.exported_gains_forgotten, "diet_rel"),
    (check_file, mutants.exported_weights_not_tied, "diet_rel"),
]


@mutants.each(MUTANTS)
def test_a_mutant_is_caught(check, mutant, case, monkeypatch):
    """The test catches it even if `export hf` itself compares nothing."""
    converted.cache_clear()
    monkeypatch.setattr(to_transformers, "check_same", lambda *_: 0.0)
    mutants.assert_caught(check, mutant, case)
    converted.cache_clear()


def test_the_export_refuses_a_model_with_other_outputs(monkeypatch):
    model = tiny.model_of(tiny.named("diet_rel"))
    mutants.exported_positions_shifted_by_one(monkeypatch)
    with pytest.raises(UserError, match="the exported model does not reproduce the checkpoint "):
        convert(model)


@pytest.mark.parametrize(
    ("head", "parameter"),
    [
        (None, "lm_head.dense.bias"),
        ("sentence_classification_head", "classifier.out_proj.bias"),
        ("span", "qa_outputs.out_proj.bias"),
    ],
)
@torch.no_grad()
def test_the_export_compares_the_outputs_of_heads(head, parameter):
    model = tiny.fresh(tiny.Case("diet_rel", family="roberta"))
    if head is not None:
        model.register_classification_head(head, 2)
    converted = convert(model, head).model
    converted.get_parameter(parameter).add_(1)
    with pytest.raises(UserError, match="does not reproduce the checkpoint"):
        to_transformers.check_same(model, converted, head)
