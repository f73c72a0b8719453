"""Scores of the offset alone in CTranslate2: exact within the model's positions, clipped beyond."""

import pytest
import torch

from diet_fairseq.export.ctranslate2 import positions
from tests.support import tiny
from tests.support.tiny import Case


@pytest.mark.parametrize("causal", [False, True])
def test_offsets_beyond_the_model_s_positions_share_the_last_score(causal):
    model = tiny.fresh(Case("alibi"))
    stack = model.decoder if causal else model.encoder
    table, furthest = positions.bias_table(stack.positions, tiny.HEADS, causal)
    slopes = torch.tensor([2**-4, 2**-8])
    expected = -torch.arange(2 * tiny.LIMIT).clamp(max=tiny.LIMIT - 1)[:, None] * slopes
    half = 2 * tiny.LIMIT
    assert furthest > tiny.LIMIT
    assert len(table) == (half if causal else 2 * half)
    torch.testing.assert_close(table[:half], expected)
    torch.testing.assert_close(table[-half:], expected)
    assert positions.exact_length(stack) == tiny.LIMIT < stack.max_positions()


@pytest.mark.parametrize("scheme", ["t5", "diet_rel", "none"])
def test_tables_that_reach_further_are_exact_at_any_length(scheme):
    model = tiny.model_of(Case(scheme))
    encoder = model.encoder
    assert positions.exact_length(encoder) == encoder.max_positions() > 10_000
