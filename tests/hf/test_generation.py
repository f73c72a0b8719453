"""Translating with transformers' `generate` is translating with fairseq."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from tests.hf.test_equality import converted
from tests.support import mutants, tiny
from tests.support.tiny import EOS, PAD, Case

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")

from transformers import LogitsProcessor, LogitsProcessorList

from diet_fairseq.export.to_hf import generation_config

#: one for each kind of terms: none, scores, rows, transformations, changed logits
KINDS = [Case(name) for name in ("none", "t5", "shaw", "rope", "cope")]
#: words, after which </s> is forced; the tiny models hardly ever end by themselves
LONGEST = 6
SOURCES = tiny.padded(tiny.sentences(9, 5, 1, 7, 2, 8, 4, 3, seed=6), left_pad=True)


def fairseq_hypotheses(model) -> tuple[list[list[int]], list[float]]:
    """The best hypothesis of each sentence, and its score."""
    source = {"src_tokens": SOURCES, "src_lengths": SOURCES.ne(PAD).sum(1)}
    sample = {"net_input": source | {"prev_output_tokens": None}}
    search = SequenceGenerator([model], tiny.WORDS, beam_size=5, max_len_b=LONGEST, min_len=1)
    best = [beam[0] for beam in search.generate([model], sample)]
    return [each["tokens"].tolist() for each in best], [float(each["score"]) for each in best]


@torch.no_grad()
def check_limit(case: Case) -> None:
    """Hypotheses that reach the length limit are fairseq's, and so are their scores."""
    tokens, scores = fairseq_hypotheses(tiny.model_of(case))
    at_limit = [each for each in tokens if len(each) == LONGEST + 1]
    assert at_limit
    model = converted(case)
    model.generation_config = generation_config(model)
    output = model.generate(
        SOURCES,
        max_new_tokens=LONGEST + 1,
        return_dict_in_generate=True,
        output_scores=True,
    )
    words = [[*row[row.ne(PAD)].tolist()][1:] for row in output.sequences]  # begins with </s>
    assert words == tokens
    assert all(each[-1] == EOS for each in words)
    torch.testing.assert_close(output.sequences_scores, torch.tensor(scores), rtol=1e-4, atol=1e-4)


@tiny.each(KINDS)
def test_hypotheses_at_the_length_limit_are_fairseq_s(case):
    check_limit(case)


class Padding(LogitsProcessor):
    """Padding, whatever the model says, as the third and fourth token of some sentences."""

    def __call__(self, input_ids, scores):
        if input_ids.size(1) in (3, 4):
            rows = torch.arange(len(scores)) % 3 != 0
            scores[rows] = torch.full_like(scores[rows], -100.0).index_fill(
                1, torch.tensor([PAD]), 0.0
            )
        return scores


@torch.no_grad()
@tiny.each(KINDS)
@pytest.mark.parametrize(
    ("attention", "options"),
    [("eager", {"use_cache": True}), ("sdpa", {"cache_implementation": "static"})],
)
def test_a_cache_changes_nothing_after_generated_padding(case, attention, options):
    model = converted(case)
    model.set_attn_implementation(attention)
    with_cache, without = (
        model.generate(
            SOURCES,
            max_new_tokens=8,
            min_new_tokens=8,
            logits_processor=LogitsProcessorList([Padding()]),
            return_dict_in_generate=True,
            output_logits=True,
            **caching,
        )
        for caching in (options, {"use_cache": False})
    )
    assert with_cache.sequences.eq(PAD).any()
    assert torch.equal(with_cache.sequences, without.sequences)
    for step, (cached, computed) in enumerate(zip(with_cache.logits, without.logits, strict=True)):
        torch.testing.assert_close(cached, computed, rtol=1e-4, atol=1e-4, msg=f"step {step}")


MUTANTS: mutants.Table = [(check_limit, mutants.an_end_that_is_certain, "t5")]


@mutants.each(MUTANTS)
def test_a_mutant_is_caught(check, mutant, case):
    mutants.assert_caught(check, mutant, case)
