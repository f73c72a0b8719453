"""The numbers of `look`, against what they are made of."""

import pytest
import torch

from diet_fairseq.analysis import lengths, loaded_model, measures, tables
from diet_fairseq.analysis.lengths import Point
from diet_fairseq.analysis.scores import Call, ModelScores, Scores, look, reduced
from tests.analysis.test_look import of, seen
from tests.support import tiny
from tests.support.tiny import Case


def test_a_decoder_s_query_looks_at_the_past_alone():
    call = Call("decoder", 1, None, None, None, None, causal=True)
    assert reduced(call, torch.zeros(1, 1, 3, 3), None).distance.tolist() == [0.5]


@pytest.mark.parametrize("family", ["roberta", "transformer"])
def test_whole_scores_of_stock_models_are_scaled(family):
    model = tiny.stock(family)
    one, found = seen(model)
    stack = one.stacks["encoder"]
    attention, given = stack.layers[0].self_attn, []
    hook = attention.register_forward_pre_hook(
        lambda _, a, k: given.append(k["query"]), with_kwargs=True
    )
    with torch.enable_grad():
        stack(loaded_model.read_batch(one, 12).tokens, src_lengths=torch.full((8,), 12))
    hook.remove()
    [query] = given
    q, k = (
        project(query).unflatten(-1, (tiny.HEADS, -1))
        for project in (attention.q_proj, attention.k_proj)
    )
    scores = torch.einsum("tbhd,sbhd->bhts", q, k) * attention.head_dim**-0.5
    torch.testing.assert_close(
        found.whole[0].entropy,
        measures.entropy(scores.softmax(-1)).mean(0).detach(),
        **tiny.TOLERANCE,
    )


def test_input_positions_share_tupe_s_scale():
    model = tiny.fresh(Case("tupe_a", family="roberta").but(position_input="learned"))
    _, found = seen(model)
    attention = model.encoder.sentence_encoder.layers[0].self_attn
    [at_input] = [one for one in found.positions if one.place == "encoder's input"]
    rows, size = found.input["encoder"], tiny.DIM // tiny.HEADS
    expected = (rows @ attention.q_proj.weight[:size].T) @ (
        rows @ attention.k_proj.weight[:size].T
    ).T
    torch.testing.assert_close(at_input.matrix[0], (expected / (2 * size) ** 0.5).detach())


@pytest.mark.parametrize("window", [3, 4, 6])
def test_a_compressed_key_is_no_token_though_there_be_as_many(window):
    case = Case("diet_abs_lin", family="roberta").but(projection_length=4, position_input="learned")
    found = look(of(tiny.fresh(case)), torch.arange(window).unsqueeze(0) + tiny.FIRST_WORD)
    assert [one.distance for one in found.whole] == [None] * len(found.whole)
    assert {one.place for one in found.positions} == {"encoder", "encoder's input"}
    assert not any(one.square for one in found.positions)


def test_a_cell_says_bleu_before_chrf():
    assert lengths.cell(Point(9, 1, 9, 3, {"BLEU": 30.5, "chrF": 50.25})) == "30.5 / 50.2"


def test_heads_of_a_decoder_are_judged_by_the_past_alone():
    [row] = tables.heads(
        ModelScores([Scores("decoder", 1, torch.zeros(1, 16, 16), causal=True)], [], [], {})
    )
    assert row["looks at"] == "global"
    assert row["distance"] == pytest.approx(sum(range(16)) / 2 / 16)


def test_a_position_is_not_compared_with_itself():
    assert tables.median_cosine(torch.eye(2)) == 0


def test_in_a_short_window_the_first_token_needs_twice_its_even_share():
    weights = torch.tensor([0.4, 0.2, 0.2, 0.2]).expand(4, 4)
    assert measures.name(weights) != "first token"


def test_parameters_of_positions_are_counted():
    one = of(tiny.model_of(tiny.named("diet_abs-roberta")))
    expected = sum(p.numel() for p in tiny.position_parameters(one.model).values())
    assert one.numbers["of positions"] == expected
