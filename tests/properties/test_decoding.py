"""Decoding step by step is decoding at once, in any batch, with and without prefixes."""

import torch
from fairseq.sequence_generator import SequenceGenerator

from tests.support import mutants, tiny
from tests.support.tiny import EOS, PAD, SOURCES, TOLERANCE, Case, padded

close = torch.testing.assert_close


def decoded(model, encoder_out, targets, state, start=0):
    """(B, T - start, V): one token a step, as beam search asks."""
    steps = range(start + 1, targets.size(1) + 1)
    return torch.cat(
        [
            model.decoder(targets[:, :step], encoder_out=encoder_out, incremental_state=state)[0]
            for step in steps
        ],
        dim=1,
    )


@torch.no_grad()
def check_incremental(case: Case) -> None:
    """Every step equals decoding at once, also where beam search reorders, drops and doubles.

    Two sentences of two beams each; the first sentence ends before the second.
    """
    model = tiny.model_of(case)
    first, _, last = SOURCES
    encoder_out = model.encoder(padded([first, first, last, last], left_pad=True), None)
    draws = iter(tiny.sentences(*[9] * 12, seed=5))
    targets = padded(tiny.shifted([next(draws) for _ in range(4)]), left_pad=False)
    state: dict = {}
    start = 0
    for stop, order in ((3, [1, 1, 3, 2]), (6, [3, 2]), (9, None)):
        full = model.decoder(targets, encoder_out=encoder_out)[0]
        steps = decoded(model, encoder_out, targets[:, :stop], state, start)
        close(steps, full[:, start:stop], **TOLERANCE)
        if order is not None:
            rows = torch.tensor(order)
            model.decoder.reorder_incremental_state_scripting(state, rows)
            encoder_out = model.encoder.reorder_encoder_out(encoder_out, rows)
            further = padded([next(draws) for _ in order], left_pad=False)
            targets = torch.cat([targets[rows][:, :stop], further[:, stop:]], dim=1)
        start = stop


@tiny.each(tiny.TRANSLATION, all_schemes=True)
def test_decoding_step_by_step_equals_decoding_at_once(case):
    check_incremental(case)


@torch.no_grad()
def check_padding_within(case: Case) -> None:
    """Padding before and between the words of a translation changes nothing, at every step."""
    model = tiny.model_of(case)
    [words] = tiny.shifted(tiny.sentences(8, seed=10))
    encoder_out = model.encoder(SOURCES[0].unsqueeze(0).expand(2, -1), None)
    expected = model.decoder(words.expand(2, -1), encoder_out=encoder_out)[0]
    before, within = torch.full((1,), PAD), torch.full((2,), PAD)
    targets = torch.stack(
        [torch.cat([words[:3], within, words[3:], before]), torch.cat([before, within, words])]
    )
    real = targets.ne(PAD)
    whole = model.decoder(targets, encoder_out=encoder_out)[0]
    close(whole[real], expected.flatten(0, 1), **TOLERANCE)
    steps = decoded(model, encoder_out, targets, {})
    close(steps[real], expected.flatten(0, 1), **TOLERANCE)


@tiny.each(tiny.TRANSLATION)
def test_padding_within_a_translation_changes_nothing(case):
    check_padding_within(case)


def translate(model, sources, left_pad=True, prefixes=None):
    """The best hypothesis of each sentence."""
    source = padded(sources, left_pad)
    sample = {
        "net_input": {
            "src_tokens": source,
            "src_lengths": source.ne(PAD).sum(1),
            "prev_output_tokens": None,
        }
    }
    generator = SequenceGenerator([model], tiny.WORDS, beam_size=3, max_len_b=5, min_len=2)
    return [beam[0] for beam in generator.generate([model], sample, prefix_tokens=prefixes)]


def assert_same_hypotheses(actual, expected) -> None:
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours["tokens"].tolist() == theirs["tokens"].tolist()
        close(ours["positional_scores"], theirs["positional_scores"], **TOLERANCE)


def assert_scored_as_at_once(model, sources, hypotheses) -> None:
    """Teacher-forced, in one forward pass, the model gives each token what the search gave it."""
    targets = [hypothesis["tokens"] for hypothesis in hypotheses]
    scores = tiny.logits(model, sources, tiny.shifted(targets)).log_softmax(dim=-1)
    expected = scores.gather(1, torch.cat(targets).unsqueeze(1)).squeeze(1)
    close(
        torch.cat([hypothesis["positional_scores"] for hypothesis in hypotheses]),
        expected,
        **TOLERANCE,
    )


@torch.no_grad()
def check_translation(case: Case) -> None:
    """Beam search translates a sentence alike in any batch, also where prefixes are given."""
    model = tiny.model_of(case)
    sources = tiny.sentences(9, 5, 1, 7, 2, seed=6)
    prefixes = padded(tiny.sentences(3, 3, 1, 2, 3, seed=7), left_pad=False)
    prefixes[prefixes == EOS] = PAD  # of 2 words, of 1, of none
    for prefix_tokens in (None, prefixes):
        together = translate(model, sources, prefixes=prefix_tokens)
        assert_scored_as_at_once(model, sources, together)
        alone = [
            translate(
                model, [source], prefixes=None if prefix_tokens is None else prefix_tokens[[i]]
            )[0]
            for i, source in enumerate(sources[:2])
        ]
        assert_same_hypotheses(alone, together[:2])
    assert_same_hypotheses(translate(model, sources, left_pad=False, prefixes=prefixes), together)
    for prefix, hypothesis in zip(prefixes, together, strict=True):
        assert (
            hypothesis["tokens"][: prefix.ne(PAD).sum()].tolist() == prefix[prefix.ne(PAD)].tolist()
        )


# one of each scheme, and what steps differently: cross-attention, factors
TRANSLATED = tiny.first_of_each_scheme(tiny.TRANSLATION) + tiny.first_of_each_scheme(
    [case for case in tiny.CASES if case.option("position_cross_attention")]
)


@tiny.each(TRANSLATED)
def test_a_translation_depends_on_no_batch_padding_or_prefix(case):
    check_translation(case)


MUTANTS: mutants.Table = [
    (check_incremental, mutants.the_new_key_stands_first, "xpos"),
    (check_incremental, mutants.keys_that_are_not_reordered, "none"),
    (check_padding_within, mutants.offsets_that_count_padding_within, "t5"),
    (check_translation, mutants.positions_from_arange, "diet_abs"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
