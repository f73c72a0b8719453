"""Scores of the offset alone in CTranslate2: exact within the model's positions, clipped beyond."""

import pytest
import torch

from diet_fairseq.errors import UserError
from diet_fairseq.export import ctranslate2 as export
from diet_fairseq.export.ctranslate2 import positions
from tests.export.test_ctranslate2 import difference, exported
from tests.support import tiny
from tests.support.tiny import Case

EXACT = 1e-5  # tolerance of log-probabilities in float32, which are at most about 10
SCHEMES = [
    Case("alibi"),
    Case("alibi").but(position_slopes="learned", position_sharing="none"),
    Case("kerple"),
    Case("kerple").but(position_kerple="power", position_sharing="head"),
    Case("sandwich"),
    Case("cpb"),
]


@pytest.mark.parametrize("case", SCHEMES, ids=str)
def test_log_probabilities_are_the_model_s(case, tmp_path):
    model = tiny.fresh(case)
    assert difference(model, exported(model, tmp_path)) < EXACT


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


@pytest.mark.parametrize("sharing", ["none", "layer"])
def test_positions_in_cross_attention_are_refused(sharing):
    """Fixed slopes are no parameters, which would be missed otherwise."""
    case = Case("alibi").but(position_cross_attention=True, position_sharing=sharing)
    with pytest.raises(UserError) as error:
        export.build_specification(tiny.model_of(case))
    assert str(error.value) == (
        "CTranslate2 can't represent positions in cross-attention: its cross-attention has no "
        "positions; export it to Hugging Face: diet-fairseq export hf"
    )


def test_a_score_of_more_than_the_offset_is_refused():
    with pytest.raises(UserError) as error:
        export.build_specification(tiny.model_of(Case("fire")))
    assert str(error.value).startswith(
        "CTranslate2 can't represent the position scheme fire: it has only scores"
    )
