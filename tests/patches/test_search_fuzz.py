"""Our search gives the hypotheses of fairseq's for random models and options."""

import copy
import random
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator

from diet_fairseq.patches.beam_search import QuickBeamSearch
from tests.patches.test_beam_search import assert_same_hypotheses
from tests.support import mutants, tiny
from tests.support.tiny import EOS, FIRST_WORD, VOCABULARY, WORDS, Case


def with_its_own_output() -> tiny.Model:
    """A user's model: its log-probabilities are not those of the projection alone."""
    model = tiny.fresh(Case("sinusoidal"))

    class OwnProbabilities(type(model)):
        def get_normalized_probs(self, net_output, log_probs, sample=None):
            logits, *others = net_output
            return super().get_normalized_probs((logits.tanh(), *others), log_probs, sample)

    model.__class__ = OwnProbabilities  # a copy of the model has it, too
    return model


#: models with options that a search may meet, fairseq's own, then one of each scheme
KINDS: dict[str, Callable[[], tiny.Model]] = {
    "pre-norm": partial(
        tiny.fresh, Case("shaw"), encoder_normalize_before=True, decoder_normalize_before=True
    ),
    "tied": partial(
        tiny.fresh, Case("sinusoidal"), share_all_embeddings=True, no_scale_embedding=True
    ),
    "no-cross-attention": partial(tiny.fresh, Case("sinusoidal"), no_cross_attention=True),
    "adaptive-softmax": partial(tiny.fresh, Case("t5"), adaptive_softmax_cutoff="10,20"),
    "own-output": with_its_own_output,
    "stock": tiny.stock,
    "align": partial(tiny.stock, "transformer_align", alignment_layer=0),
    **{
        str(case): partial(tiny.fresh, case)
        for case in (
            *tiny.first_of_each_scheme(tiny.TRANSLATION),
            Case("diet_rel", (("position_input", "learned"),)),
            Case("tupe_a", (("position_cross_attention", True),)),
        )
    },
}
built = lru_cache(maxsize=None)(lambda kind: KINDS[kind]())


def model_of(kind: str, ends: float) -> tiny.Model:
    """A new model in double precision: otherwise rounding chooses among hypotheses.

    ``ends``: how much more likely the end of a sentence is than it was.
    """
    model = copy.deepcopy(built(kind)).double()
    if model.decoder.output_projection is not None:
        with torch.no_grad():
            model.decoder.output_projection.weight[EOS] *= 1 + ends
    return model


def search_drawn(draw: random.Random) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Options of a generator, a batch, and options of the call."""

    def at_times(value: Any, usually: Any) -> Any:
        return value if draw.random() < 0.3 else usually

    min_len = draw.randrange(4)
    options = {
        "beam_size": at_times(draw.choice([1, 13, 14, 27, 40]), draw.randint(2, 6)),
        "min_len": min_len,
        "max_len_a": at_times(draw.choice([0.3, 1, 1.5]), 0),
        "max_len_b": min_len + draw.randrange(9),
        "max_len": at_times(draw.randint(4, 9), 0),
        "normalize_scores": at_times(False, True),
        "len_penalty": at_times(draw.uniform(-1, 3), 1.0),
        "unk_penalty": at_times(draw.uniform(-3, 3), 0.0),
        "temperature": at_times(draw.uniform(0.3, 3), 1.0),
        "eos": at_times(draw.randrange(FIRST_WORD, VOCABULARY), None),
    }
    rare_options: list[dict[str, Any]] = [
        {"match_source_len": True, "min_len": 0},
        {"no_repeat_ngram_size": 2},
        {"tokens_to_suppress": ("word3", "word5")},
        {"search_strategy": search.DiverseBeamSearch(WORDS, 1, 0.5)},
    ]
    options |= at_times(draw.choice(rare_options), {})
    lengths = [draw.randint(1, 9) for _ in range(at_times(1, draw.randint(2, 7)))]
    sources = tiny.sentences(*lengths, seed=draw.randrange(10**6))
    net_input = {
        "src_tokens": tiny.padded(sources, left_pad=draw.random() < 0.6),
        "src_lengths": torch.tensor(lengths),
    }
    prefix = torch.tensor([[draw.randrange(FIRST_WORD, VOCABULARY)]] * len(lengths))
    call = {
        "bos_token": at_times(draw.randrange(FIRST_WORD, VOCABULARY), None),
        "prefix_tokens": prefix if draw.random() < 0.1 else None,
    }
    return options, {"net_input": net_input}, call


def check_searches(kind: str, number: int = 12) -> None:
    for seed in range(number):
        draw = random.Random(seed)
        options, sample, call = search_drawn(draw)
        model = model_of(kind, ends=draw.uniform(-1, 2))
        # Both are there before one is used: fairseq's changes a BART when it is built.
        ours, theirs = (
            search([model], WORDS, **options) for search in (QuickBeamSearch, SequenceGenerator)
        )
        try:
            hypotheses = ours.generate([model], sample, **call)
            assert_same_hypotheses(hypotheses, theirs.generate([model], sample, **call))
            assert_same_hypotheses(hypotheses, ours.generate([model], sample, **call))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {options}, {call}") from error


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_searches_equal_fairseq_s(kind):
    check_searches(kind, 8)


MUTANTS: mutants.Table = [(check_searches, mutants.every_model_has_standard_output, "own-output")]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
