"""Facts about single schemes: what their sources state, beyond the equation."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.profiler import profile

from diet_fairseq.attention.rows import row_scores
from diet_fairseq.attention.terms import compute_scores, dense_sum
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit, PositionScheme, relative
from diet_fairseq.positions.base import find_score_kind
from diet_fairseq.positions.layout import Layout, toeplitz
from diet_fairseq.positions.scores import Factors, Offsets, Rows
from tests.support import mutants, tiny
from tests.support.attentions import Attention, attentions
from tests.support.tiny import LIMIT, PAD, TOLERANCE, Case, padded

close = torch.testing.assert_close


def full(length: int, causal: bool = False) -> Layout:
    return Layout.of_self_attention(torch.zeros(1, length, dtype=torch.bool), causal)


def scheme_of(name: str, heads: int = 2, n: int = LIMIT, causal: bool = False, **options):
    """A new scheme with its initial parameters."""
    limit = Limit(n, "--max-source-positions")
    return SCHEMES[name].create(AttentionShape(heads, 8, 16, limit, limit, causal), **options)


# --- the contract ----------------------------------------------------------------------------


@torch.no_grad()
def check_contract(case: Case) -> None:
    """Shapes as `PositionScheme` says, and factors that multiply to the score."""
    tokens = padded(tiny.SOURCES, left_pad=True)
    sentences, length = tokens.shape
    for attention in attentions(tiny.model_of(case)):
        scheme, layout = attention.scheme, attention.layout(tokens.eq(PAD))
        if scheme is None:
            continue
        keys = attention.seen(tokens.eq(PAD)).size(-1)
        score, kinds = scheme.score(layout), scheme.kinds
        typed = kinds & {"offsets", "factors", "sum", "dense"}
        assert typed == (set() if score is None else {find_score_kind(type(score))})
        if score is not None:
            matrix = score.dense(layout)
            assert matrix.shape[0] in (1, sentences)
            assert matrix.shape[1] in (1, tiny.HEADS)
            assert matrix.shape[2:] == (length, keys)
            half = copy.deepcopy(scheme).bfloat16()
            assert half.score(layout).dense(layout).dtype is torch.float32
            with torch.autocast("cpu", torch.bfloat16):
                assert scheme.score(layout).dense(layout).dtype is torch.float32
        if isinstance(score, Factors):
            query, key = score.columns(torch.float32)
            close(query @ key.mT, matrix, **TOLERANCE)
            assert score.columns(torch.bfloat16)[0].size(-1) == scheme.rank
        if isinstance(score, Offsets):
            if layout.is_toeplitz:
                assert torch.equal(toeplitz(score.line, length).unsqueeze(0), matrix)
            assert_reach(score, layout)
        for rows in rows_of(attention, layout):
            assert rows.rows.shape[0] in (1, tiny.HEADS)
            assert rows.rows.shape[2] == tiny.DIM // tiny.HEADS
            torch.broadcast_to(rows.index, (sentences, 1, length, keys))
            assert 0 <= rows.index.min() <= rows.index.max() < rows.rows.size(1)
        q = tiny.vectors(sentences, tiny.HEADS, length, tiny.DIM // tiny.HEADS)
        k = tiny.vectors(sentences, tiny.HEADS, keys, tiny.DIM // tiny.HEADS)
        changed = scheme.transform(q, k, layout)
        wide = q.size(-1) * scheme.widening
        assert [x.shape for x in changed] == [(*x.shape[:-1], wide) for x in (q, k)]
        assert ("transform" in kinds) == any(
            not torch.equal(x, y) for x, y in zip(changed, (q, k), strict=True)
        )
        names = {name for name, _ in scheme.named_parameters(recurse=False)}
        assert not names & {"gain", "terms"}, "state dicts have these names for something else"


def assert_reach(score: Offsets, layout: Layout) -> None:
    """Beyond the reach, on either side, all scores are the same."""
    offsets = layout.offset_line
    for far in (offsets >= (score.reach or LIMIT), offsets <= -(score.reach or LIMIT)):
        if far.any():
            first = score.line[:, far][:, :1]
            assert torch.equal(score.line[:, far], first.expand(-1, int(far.sum())))


def test_multiplied_offsets_keep_their_reach():
    score = Offsets(torch.arange(7.0).unsqueeze(0), reach=2)
    assert score.times(2.0).reach == 2


def test_offsets_have_no_layout():
    with pytest.raises(TypeError, match="positional"):
        Offsets(torch.arange(7.0).unsqueeze(0), full(4))


def rows_of(attention: Attention, layout: Layout) -> list[Rows]:
    """All rows that a scheme has, as its `kinds` say."""
    scheme, project = attention.scheme, attention.module.projections()
    rows = {
        "query_rows": scheme.query_rows(layout, project),
        "key_rows": scheme.key_rows(layout, project),
        "value_rows": scheme.value_rows(layout),
    }
    overridden = {name: value for name, value in rows.items() if value is not None}
    assert overridden.keys() == scheme.kinds & rows.keys()
    return list(overridden.values())


@tiny.each(tiny.IN_ATTENTION)
def test_a_scheme_keeps_the_contract(case):
    check_contract(case)


# --- length ----------------------------------------------------------------------------------


@torch.no_grad()
def check_too_long(case: Case) -> None:
    """Tables of positions end, and say so; tables of offsets go on with the outermost one."""
    model = tiny.model_of(case)
    fits, too_long = tiny.sentences(5, LIMIT + 4)
    kinds = {case.kind, SCHEMES[case.option("position_global_scheme") or case.scheme]}
    limited = any(kind.absolute for kind in kinds) or case.option("position_input") != "none"
    together = [tiny.logits(model, [fits, source], [fits, fits])[:5] for source in (fits, fits[:1])]
    close(*together, **TOLERANCE)
    wide = torch.nn.functional.pad(fits, (0, LIMIT), value=PAD)  # padded, not long
    close(tiny.logits(model, [wide], [wide]), tiny.logits(model, [fits], [fits]), **TOLERANCE)
    sides = [("source-", too_long, fits), ("target-", fits, too_long)]
    if tiny.is_encoder(model):
        sides = [("", too_long, fits)]
    for side, source, target in sides:
        if not limited:
            assert tiny.logits(model, [source], [target]).isfinite().all()
            continue
        text = (
            f"a sentence of {LIMIT + 4} tokens is longer than the {LIMIT} positions of the model "
            f"(--max-{side}positions): shorten it, or train with a larger --max-{side}positions"
        )
        assert refusal(tiny.logits, model, [source], [target]) == text
        assert (model.decoder if side == "target-" else model.encoder).max_positions() == LIMIT


def refusal(call, *args) -> str:
    """The text that a user reads."""
    try:
        call(*args)
    except UserError as error:
        return str(error)
    raise AssertionError("nothing was refused")


@tiny.each(tiny.NO_BACKEND)
def test_too_long_an_input_is_refused_unless_a_scheme_has_no_limit(case):
    check_too_long(case)


@pytest.mark.parametrize("name", ["shaw", "t5", "diet_rel"])
def test_offsets_beyond_a_table_have_the_score_of_the_outermost(name):
    options = {"buckets": 8, "max_distance": 10} if name == "t5" else {"clip": 3}
    edge = 3 if name != "t5" else 10
    scheme = scheme_of(name, **options)
    layout = full(30)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.normal_()
        same_query = tiny.vectors(1, 2, 1, 8).expand(-1, -1, 30, -1)
        rows = row_scores((scheme,), same_query, same_query, layout, None, 1.0)
        score = dense_sum((*compute_scores((scheme,), layout), *rows), layout)
    for offset in (*range(-29, -edge), *range(edge + 1, 30)):
        outermost = score.diagonal(edge if offset > 0 else -edge, dim1=-2, dim2=-1)[..., :1]
        line = score.diagonal(offset, dim1=-2, dim2=-1)
        close(line, outermost.expand_as(line), **TOLERANCE)


# --- DIET-ABS and DIET-REL -------------------------------------------------------------------


@torch.no_grad()
def check_rank(case: Case) -> None:
    """The score of every head has rank d_p at most; random parameters reach it."""
    rank = case.option("position_rank") or tiny.DIM // tiny.HEADS
    for attention in attentions(tiny.model_of(case)):
        layout = attention.layout(torch.zeros(1, LIMIT, dtype=torch.bool))
        for head in attention.scheme.score(layout).dense(layout)[0]:
            assert torch.linalg.matrix_rank(head, rtol=1e-4) == rank


@tiny.each([Case("diet_abs"), Case("diet_abs").but(position_rank=3)])
def test_diet_abs_has_the_rank_it_is_given(case):
    check_rank(case)


@pytest.mark.parametrize("clip", [7, 8, 9, None])  # 9 tokens have offsets from -8 to 8
def test_diet_rel_looks_nothing_up_unless_an_offset_is_clipped(clip):
    scheme = scheme_of("diet_rel", clip=clip)
    nn.init.normal_(scheme.weight)
    factors = torch.randn(2, 17)

    def line_and_gradient(score):
        line = score(full(9)).line
        return line, *torch.autograd.grad((line * factors).sum(), scheme.weight)

    looked_up = line_and_gradient(partial(relative.OffsetScores.score, scheme))
    with profile() as profiler:
        results = line_and_gradient(scheme.score)
    assert all(map(torch.equal, results, looked_up))
    assert ("aten::embedding" in {event.name for event in profiler.events()}) == (clip == 7)


# --- TUPE ------------------------------------------------------------------------------------

#: of n = 16 positions, 2 heads, width d = 16: docs/schemes.md states these costs
SIZE_OF = [
    ("tupe_a", {"untie_cls": "paper"}, 17 * 16 + 2 * 16**2 + 4 * 16),
    ("tupe_a", {"no_layer_norm": True}, 16 * 16 + 2 * 16**2 + 2 * 16),
    ("bert_ad", {}, 16 * 16 + 2 * 16**2 + 4 * 16),
    ("tupe_free", {"untie_cls": "paper"}, 2 * 16**2 + 2 * 2),
    ("tupe_r", {"relative": "scalar"}, 16 * 16 + 2 * 16**2 + 4 * 16 + 32 * 2),
    ("tupe_r", {"relative": "product"}, 16 * 16 + 4 * 16**2 + 4 * 16 + 32 * 16),
    ("diet_rel", {}, 2 * 31),
    ("diet_rel", {"clip": 7}, 2 * 15),
]


@pytest.mark.parametrize(("name", "options", "parameters"), SIZE_OF)
def test_a_scheme_has_the_documented_number_of_parameters(name, options, parameters):
    assert sum(p.numel() for p in scheme_of(name, **options).parameters()) == parameters


# --- the start -------------------------------------------------------------------------------

#: standard deviations at the start, of wide tables
START = {
    ("shaw", "keys"): (2 / (33 + 8)) ** 0.5,
    ("shaw", "values"): (2 / (33 + 8)) ** 0.5,
    ("t5", "weight"): 16**-0.5,
    ("diet_rel", "weight"): 0.0,
    ("diet_abs", "query"): 0.02,
    ("diet_abs", "key"): 0.02,
    ("diet_abs_lin", "query"): 0.02,
    ("diet_abs_lin", "key"): 0.02,
    ("tupe_a", "pos.weight"): 0.02,
    ("tupe_a", "pos_q_linear.weight"): 0.02,
    ("tupe_a", "pos_k_linear.weight"): 0.02,
    ("tupe_a", "pos_q_linear.bias"): 0.0,
    ("tupe_a", "pos_k_linear.bias"): 0.0,
    ("tupe_r", "relative_attention_bias.weight"): 0.02,
    ("tupe_free", "weight"): 0.02,
    ("bert_ad", "pos.weight"): 0.02,
}


@pytest.mark.parametrize(("name", "parameter"), START, ids=map(" ".join, START))
def test_parameters_start_as_their_source_says(name, parameter):
    plain = {"values": parameter == "values", "gain": 1.0, "start": "blind"}
    names = {option.argument for option in SCHEMES[name].options}
    options = {key: value for key, value in plain.items() if key in names}
    tensor = scheme_of(name, heads=64, n=256, **options).get_parameter(parameter)
    tensor, expected = tensor.detach(), START[name, parameter]
    assert float(tensor.std()) == pytest.approx(expected, rel=0.1)
    assert abs(float(tensor.mean())) <= 0.1 * expected


def test_sharing_is_by_default_that_of_the_source():
    default = {name: scheme.sharing for name, scheme in SCHEMES.items() if scheme.in_attention}
    layers = ("t5", "tupe_a", "tupe_r", "tupe_free", "bert_ad", "diet_abs", "diet_abs_lin")
    sources = {"shaw": "head", "diet_rel": "none", **dict.fromkeys(layers, "layer")}
    assert {name: default[name] for name in sources} == sources


def test_every_scheme_says_where_it_is_from():
    for scheme in SCHEMES.values():
        assert issubclass(scheme, PositionScheme)
        assert scheme.__doc__ is not None
        assert scheme.__doc__ != PositionScheme.__doc__


MUTANTS: mutants.Table = [
    (check_contract, mutants.a_promise_of_factors, "t5"),
    (check_too_long, mutants.no_length_is_refused, "diet_abs"),
    (check_rank, mutants.factors_of_another_rank, "diet_abs"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
