"""The numbers of `look`, against numbers computed by hand."""

import pytest
import torch

from diet_fairseq.look import figures, measures, tables
from diet_fairseq.look.lengths import Curve, render_markdown
from diet_fairseq.look.scores import ModelScores, PositionScore, look, statistics
from diet_fairseq.look.windows import read_windows
from tests.look.test_look import loaded, scores_of
from tests.support import tiny
from tests.support.tiny import Case


def test_a_decoder_s_query_looks_at_the_past_alone():
    columns = statistics("decoder", 1, torch.zeros(1, 1, 3, 3), None).columns
    assert columns["distance"].tolist() == [0.5]


@pytest.mark.parametrize("family", ["roberta", "transformer"])
def test_logits_of_stock_models_are_scaled(family):
    model, scores = scores_of(tiny.stock(family))
    stack = model.stacks["encoder"]
    attention, queries = stack.layers[0].self_attn, []
    hook = attention.register_forward_pre_hook(
        lambda _, args, kwargs: queries.append(kwargs["query"]), with_kwargs=True
    )
    with torch.enable_grad():
        stack(read_windows(model, 12), src_lengths=torch.full((8,), 12))
    hook.remove()
    [query] = queries
    q, k = (
        project(query).unflatten(-1, (tiny.HEADS, -1))
        for project in (attention.q_proj, attention.k_proj)
    )
    logits = torch.einsum("tbhd,sbhd->bhts", q, k) * attention.head_dim**-0.5
    torch.testing.assert_close(
        scores.logits[0].columns["entropy"],
        measures.entropy(logits.softmax(-1)).mean(0).detach(),
        **tiny.TOLERANCE,
    )


def test_input_positions_share_tupe_s_scale():
    model = tiny.fresh(Case("tupe_a", family="roberta").but(position_input="learned"))
    _, scores = scores_of(model)
    attention = model.encoder.sentence_encoder.layers[0].self_attn
    [at_input] = [score for score in scores.positions if score.place == "encoder's input"]
    rows, size = scores.embeddings["encoder"], tiny.DIM // tiny.HEADS
    expected = (rows @ attention.q_proj.weight[:size].T) @ (
        rows @ attention.k_proj.weight[:size].T
    ).T
    torch.testing.assert_close(at_input.matrix[0], (expected / (2 * size) ** 0.5).detach())


@pytest.mark.parametrize("window", [3, 4, 6])
def test_compressed_keys_have_no_offsets(window):
    case = Case("diet_abs_lin", family="roberta").but(projection_length=4, position_input="learned")
    scores = look(loaded(tiny.fresh(case)), torch.arange(window).unsqueeze(0) + tiny.FIRST_WORD)
    assert not any("distance" in statistics.columns for statistics in scores.logits)
    assert {score.place for score in scores.positions} == {"encoder", "encoder's input"}
    assert not any(score.has_offsets for score in scores.positions)


def test_a_cell_says_bleu_before_chrf():
    curve = Curve("a", "none", 9, {"1-9": {"chrF": 50.25, "BLEU": 30.5}})
    assert render_markdown([curve]).endswith("| 30.5 / 50.2 |")


def test_heads_of_a_decoder_are_judged_by_the_past_alone():
    [row] = tables.head_rows(ModelScores([PositionScore("decoder", 1, torch.zeros(1, 16, 16))]))
    assert row["looks at"] == "global"
    assert row["distance"] == pytest.approx(sum(range(16)) / 2 / 16)


def test_no_curve_leaves_its_panel():
    layers = [PositionScore("encoder", n, n * torch.randn(2, 8, 8)) for n in (1, 2)]
    for panel in figures.draw_offset_curves(layers).axes:
        bottom, top = panel.get_ylim()
        curves = [line.get_ydata() for line in panel.lines[:2]]  # one a head
        assert all(bottom <= min(line) and max(line) <= top for line in curves)


def test_a_position_is_not_compared_with_itself():
    histogram = figures.draw_cosines(torch.eye(2)).axes[1]
    assert histogram.get_title() == "median 0.00"


def test_in_a_short_window_the_first_token_needs_twice_its_even_share():
    weights = torch.tensor([0.4, 0.2, 0.2, 0.2]).expand(4, 4)
    assert measures.name_head(weights) != "first token"
