"""Every scheme in transformers gives the logits that it gives in fairseq."""

from functools import cache

import pytest
import torch

from diet_fairseq.errors import UserError
from tests.support import tiny

hf = pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")

from diet_fairseq.export import huggingface  # noqa: E402


@cache
def converted(case):
    """The model in transformers; what converting itself compares is compared below."""
    return huggingface.converted(tiny.model_of(case)).model


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
        fake = type("", (), {"encoder": type("", (), {"sentence_encoder": type("", (), {})})})
        fake.encoder.sentence_encoder.num_segments = pieces
        segments = tiny.segments_of(fake, tiny.SOURCES, left_source)
    return model(sources, token_type_ids=segments, **options).logits[real(sources)]


@tiny.each(tiny.NO_BACKEND)
@torch.no_grad()
def test_logits_are_those_of_fairseq_on_both_sides_of_padding_and_with_both_attentions(case):
    model, other = tiny.model_of(case), converted(case)
    for attention, left in (("eager", True), ("sdpa", False)):
        other.set_attn_implementation(attention)
        expected = tiny.logits(model, left_source=left, left_target=not left)
        found = logits(other, left, not left)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


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
@torch.no_grad()
def test_fairseq_s_own_models_are_ours_of_the_same_positions(family, options, scheme):
    model = tiny.stock(family, **options)
    other = huggingface.converted(model).model
    assert other.config.position_scheme == scheme
    for left in (True, False):
        expected = tiny.logits(model, left_source=left, left_target=not left)
        torch.testing.assert_close(logits(other, left, not left), expected, rtol=1e-5, atol=1e-5)


def test_positions_of_two_kinds_are_refused():
    with pytest.raises(UserError) as error:
        huggingface.converted(tiny.stock(encoder_learned_pos=True))
    assert str(error.value) == (
        "the model's positions are learned and sinusoidal, which its form in transformers lacks: "
        "keep it in fairseq"
    )


@pytest.mark.parametrize("width", [8, tiny.DIM])
def test_an_electra_s_discriminator_is_an_encoder(width):
    args = tiny.complete("electra_tupe_r", embedding_size=width)
    model = tiny.from_arguments(args)
    other = huggingface.converted(model)  # compares the features
    assert type(other.model).__name__ == "DietEncoderModel"
    back = huggingface.arguments(other.model.config)
    assert back.arch == ("electra_tupe_r" if width == 8 else "bert_tupe_r")
