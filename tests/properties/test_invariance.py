"""The batch, the side of the padding, the future and the start change no output."""

from itertools import product
from unittest import mock

import torch
from torch import Tensor

from diet_fairseq.attention import packing
from diet_fairseq.look.scores import WORD_KINDS
from diet_fairseq.positions.layout import Layout
from tests.support import mutants, tiny
from tests.support.attentions import attentions
from tests.support.tiny import PAD, SIDES, SOURCES, TARGETS, TOLERANCE, Case, padded

close = torch.testing.assert_close


@torch.no_grad()
def check_alone(case: Case) -> None:
    """Sentences of 9, 5 and 1 tokens have the same outputs alone and in a padded batch."""
    model = tiny.model_of(case)
    alone = [
        tiny.logits(model, [source], [target])
        for source, target in zip(SOURCES, TARGETS, strict=True)
    ]
    for (left_source, left_target), share in product(
        SIDES, (packing.MIN_PADDING_SHARE, 2)
    ):  # 2: never packed
        with mock.patch.object(packing, "MIN_PADDING_SHARE", share):
            together = tiny.logits(model, left_source=left_source, left_target=left_target)
        close(together, torch.cat(alone), **TOLERANCE)


@tiny.each(tiny.CASES)
def test_a_sentence_alone_equals_the_sentence_in_a_padded_batch(case):
    check_alone(case)


@torch.no_grad()
def check_gap(case: Case) -> None:
    """Padding between the words of a sentence changes nothing, alone and in a batch.

    In transformers an attention mask with zeros inside makes such padding.
    """
    model = tiny.model_of(case)
    [words] = tiny.sentences(8, seed=10)
    expected = read(model, words.unsqueeze(0))[0]
    gap = torch.cat([words[:3], torch.full((2,), PAD), words[3:]])
    shorter = torch.cat([torch.full((5,), PAD), words[:5]])
    for batch in ([gap], [gap, shorter]):
        close(read(model, torch.stack(batch))[0], expected, **TOLERANCE)


def read(model: tiny.Model, source: Tensor) -> list[Tensor]:
    """(T, d) each: the encoder's output at the real tokens of every sentence."""
    stack = model.encoder.sentence_encoder if tiny.is_encoder(model) else model.encoder
    out = stack(source, None)["encoder_out"][0].transpose(0, 1)  # (B, T, d)
    return [states[row.ne(PAD)] for states, row in zip(out, source, strict=True)]


@tiny.each(tiny.CASES)
def test_padding_within_a_sentence_changes_nothing(case):
    check_gap(case)


@tiny.each([case for case in tiny.ENCODERS if case.kind.kinds == {"offsets"}])
def test_padding_within_a_sentence_changes_nothing_for_scores_of_offsets(case):
    check_gap(case.but(attention_backend="offsets"))


def check_past(case: Case) -> None:
    """Later words change nothing of what came before, and get no gradient from it."""
    model = tiny.model_of(case)
    targets = tiny.shifted(tiny.sentences(9, 9, 9, seed=8))
    changed_targets = tiny.shifted(tiny.sentences(9, 9, 9, seed=9))
    embedded = []
    hook = model.decoder.embed_tokens.register_forward_hook(lambda *_: embedded.append(_[-1]))
    for step in (1, 4, 8):
        mixed = [
            torch.cat([t[:step], o[step:]]) for t, o in zip(targets, changed_targets, strict=True)
        ]
        out, changed = (
            tiny.logits(model, targets=batch).view(3, 9, -1) for batch in (targets, mixed)
        )
        close(changed[:, :step], out[:, :step], **TOLERANCE)
        assert tiny.difference(changed[:, step:], out[:, step:]) > tiny.VISIBLE
        loss = tiny.some_loss(out[:, step - 1])
        (gradient,) = torch.autograd.grad(loss, embedded[-2])
        assert gradient[:, step:].count_nonzero() == 0
        assert gradient[:, :step].count_nonzero() > 0
    hook.remove()


@tiny.each(tiny.TRANSLATION)
def test_nothing_comes_from_the_future(case):
    check_past(case)


@torch.no_grad()
def check_shift(case: Case) -> None:
    """The same words after five others that nobody may look at: only absolute schemes notice."""
    shift, length = 5, 9
    places = torch.arange(shift + length).unsqueeze(0)
    hidden = (places < shift).expand(2, -1)
    x = tiny.vectors(2, shift + length, tiny.DIM)
    for attention in attentions(tiny.model_of(case)):
        if attention.scheme is None:
            continue
        later = Layout(places, places, hidden, causal=attention.causal)
        first = Layout(places[:, :length], places[:, :length], None, causal=attention.causal)
        moved = tiny.difference(attention(x, later)[:, shift:], attention(x[:, shift:], first))
        assert (moved > tiny.VISIBLE) == attention.scheme.absolute, (attention.name, moved)


@tiny.each(tiny.IN_ATTENTION)
def test_a_scheme_notices_a_shift_if_and_only_if_it_is_absolute(case):
    check_shift(case)


@torch.no_grad()
def check_full_context(case: Case) -> None:
    """Reading a whole translation at once, the decoder sees all of it, and no padding."""
    model = tiny.model_of(case)
    alone = [
        tiny.logits(model, [source], [target], full_context_alignment=True)
        for source, target in zip(SOURCES, TARGETS, strict=True)
    ]
    for left_source, left_target in SIDES:
        together = tiny.logits(
            model, left_source=left_source, left_target=left_target, full_context_alignment=True
        )
        close(together, torch.cat(alone), **TOLERANCE)
    last_word_changed = TARGETS[0].clone()
    last_word_changed[-1] = tiny.FIRST_WORD if TARGETS[0][-1] > tiny.FIRST_WORD else PAD + 3
    first_outputs = [
        tiny.logits(model, SOURCES[:1], [target], full_context_alignment=True)[:-1]
        for target in (TARGETS[0], last_word_changed)
    ]
    assert tiny.difference(*first_outputs) > tiny.VISIBLE


@tiny.each([case for case in tiny.TRANSLATION if case.option("position_window") is None])
def test_with_full_context_every_word_sees_every_other_and_no_padding(case):
    check_full_context(case)


@torch.no_grad()
def check_weights(case: Case) -> None:
    """Weights sum to 1 and are exactly 0 at padding and at later tokens."""
    for attention in attentions(tiny.model_of(case)):
        for left_pad in (True, False):
            tokens = padded(SOURCES, left_pad)
            padding = tokens.eq(PAD)
            real = ~padding
            layout = attention.layout(padding)
            weights = attention(tiny.vectors(*tokens.shape, tiny.DIM), layout, weights=True)
            seen = attention.seen(padding)  # (B, Tq, Tk)
            for sentence, sees, asks in zip(weights, seen, real, strict=True):
                assert sentence[:, asks][:, ~sees[asks]].count_nonzero() == 0
                assert sentence[:, asks][:, sees[asks]].count_nonzero() > 0
                total = sentence[:, asks].sum(-1)
                close(total, torch.ones_like(total), **TOLERANCE)


@tiny.each(tiny.NO_BACKEND)
def test_weights_sum_to_1_and_are_0_at_padding_and_in_the_future(case):
    check_weights(case)


@torch.no_grad()
def check_extremes(case: Case) -> None:
    """Learned scores of millions: the mask still holds, and all stays finite."""
    scores = (1e3, -1e3) if case.kind.absolute or case.kind.kinds & WORD_KINDS else (1e7, -1e7)
    padding = padded(SOURCES, left_pad=True).eq(PAD)
    x = tiny.vectors(*padding.shape, tiny.DIM)
    model = tiny.model_to_change(case)
    for size, dtype in product(scores, (torch.float32, torch.bfloat16)):
        model.to(dtype)
        for parameter in tiny.position_parameters(model).values():
            parameter.copy_(size * (1 + parameter.sign() / 2))
        for attention in attentions(model):
            layout = attention.layout(padding)
            weights = attention(x.to(dtype), layout, weights=True)
            assert weights.isfinite().all()
            assert attention(x.to(dtype), layout).isfinite().all()
            hidden = ~attention.seen(padding) & ~padding.unsqueeze(-1)  # (B, Tq, Tk)
            hidden = hidden.unsqueeze(1).expand_as(weights)
            assert weights[hidden].count_nonzero() == 0


@tiny.each(tiny.IN_ATTENTION)
def test_no_learned_score_beats_the_mask(case):
    check_extremes(case)


def check_half_precision(case: Case) -> None:
    """In bf16 outputs, at padding too, and gradients are finite."""
    model = tiny.model_to_change(case).bfloat16()
    expected = tiny.logits(tiny.model_of(case))
    for left_source, left_target in SIDES:
        source, target = padded(SOURCES, left_source), padded(TARGETS, left_target)
        if tiny.is_encoder(model):
            out, _ = model(source, segments=tiny.segments_of(model, SOURCES, left_source))
            real = source.ne(PAD)
        else:
            out, _ = model(source, None, target)
            real = target.ne(PAD)
        assert out.dtype == torch.bfloat16
        assert out.isfinite().all()
        assert tiny.difference(out[real].float(), expected) < 0.25
        gradients = tiny.gradients(model, tiny.some_loss(out))
        assert all(gradient.isfinite().all() for gradient in gradients.values())


@tiny.each(tiny.CASES)
def test_half_precision_stays_finite_and_close(case):
    check_half_precision(case)


MUTANTS: mutants.Table = [
    (check_alone, mutants.positions_from_arange, "diet_abs"),
    (check_gap, mutants.offsets_that_count_padding_within, "tupe_r-roberta"),
    (check_past, mutants.the_future_is_seen, "diet_rel"),
    (check_shift, mutants.offsets_that_weigh_more_further_on, "t5"),
    (check_full_context, mutants.the_future_is_never_seen, "t5"),
    (check_weights, mutants.padding_is_seen, "shaw"),
    (check_extremes, mutants.a_finite_mask, "diet_rel"),
    (check_half_precision, mutants.padding_sees_nothing, "t5"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
