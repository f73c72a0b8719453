"""Scores are a gain times their parameters; heads may start at offsets of their own."""

import pytest
import torch

from diet_fairseq.attention.moving import sum_steps
from diet_fairseq.attention.rows import row_scores
from diet_fairseq.attention.terms import compute_scores, dense_sum
from diet_fairseq.config import default_options
from diet_fairseq.models import warm_start
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit, PositionScheme
from diet_fairseq.positions.base import Projections
from diet_fairseq.positions.gain import MAX_FIRST_OFFSET, ScoreParameters, first_offsets
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Factors
from tests.positions.test_schemes import scheme_of
from tests.support import mutants, tiny
from tests.support.tiny import TOLERANCE, Case

close = torch.testing.assert_close

GAINED = [name for name, scheme in SCHEMES.items() if "position_gain" in default_options(scheme)]
LOCAL = [name for name, scheme in SCHEMES.items() if "position_start" in default_options(scheme)]
#: of an absolute scheme or of offsets, without padding
LAYOUT = Layout.of_self_attention(torch.zeros(1, 12, dtype=torch.bool))
QUERIES = torch.randn(1, 2, 12, 8, generator=torch.Generator().manual_seed(1))  # (B, H, T, d_h)
NO_PROJECTIONS = Projections(torch.clone, torch.clone)


def case_of(name: str, **options: object) -> Case:
    return Case(name, family="roberta").but(**options)


def score_of(scheme: PositionScheme) -> torch.Tensor:
    """(1, H, T, T), of queries that stay the same where the scheme reads them."""
    layout = LAYOUT
    if scheme.moves:
        moved = sum_steps(scheme, tiny.vectors(1, 12, scheme.shape.embed_dim), layout)
        layout = layout.move(moved, moved)
    rows = row_scores((scheme,), QUERIES, QUERIES, layout, NO_PROJECTIONS, 1.0)
    score = dense_sum((*compute_scores((scheme,), layout), *rows), layout)
    assert score is not None
    return score


def gains_in(model: tiny.Model) -> dict[str, float]:
    return {
        name: module.gain
        for name, module in model.named_modules()
        if isinstance(module, ScoreParameters)
    }


@pytest.mark.parametrize("start", ["blind", "local"])
@pytest.mark.parametrize("name", GAINED)
def test_the_initial_score_does_not_depend_on_the_gain(name, start):
    options = {"start": start} if name in LOCAL else {}
    scores = []
    for gain in (1.0, 7.0):
        torch.manual_seed(3)
        scores.append(score_of(scheme_of(name, n=16, gain=gain, **options)))
    close(scores[0], scores[1], **TOLERANCE)
    assert name == "diet_rel" or bool(scores[0].any())


def check_gain(case: Case) -> None:
    """A gain of 3 is three times the parameters, whichever path computes the score."""
    for backend in ["reference", *tiny.fast_paths(case)]:
        model = tiny.model_to_change(case.but(attention_backend=backend))
        expected = tiny.logits(model)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, ScoreParameters):
                    module.gain *= 3
                    for parameter in module.parameters(recurse=False):
                        parameter /= 3
        close(tiny.logits(model), expected, **TOLERANCE)


GAINED_CASES = [
    case
    for case in tiny.CASES
    if case.scheme in GAINED or case.option("segment_scheme") == "per-head"
    if case.option("attention_backend") is None
]


@tiny.each(GAINED_CASES)
def test_a_gain_multiplies_the_parameters_on_every_path(case):
    check_gain(case)


@pytest.mark.parametrize("name", [name for name in SCHEMES if not SCHEMES[name].compressed])
def test_segments_per_head_have_a_gain_of_their_own_unless_one_is_given(name):
    case = Case(name, family="bert").but(segment_scheme="per-head")
    gains = gains_in(tiny.fresh(case))
    assert {gain for part, gain in gains.items() if part.endswith("segments")} == {30.0}
    assert set(gains_in(tiny.fresh(case.but(position_gain=3.0))).values()) == {3.0}


#: those whose scores are not all moved by the gain alone; test_moving_schemes.py has fox
OTHERWISE_MOVED = ("tupe_r", "shaw", "fox")


@pytest.mark.parametrize("name", [name for name in GAINED if name not in OTHERWISE_MOVED])
def test_an_update_moves_the_score_by_the_gain_times_the_learning_rate(name):
    """In a product each factor moves the score: to first order by the gain times the other one."""
    scheme = scheme_of(name, n=12, gain=5.0, start="local")
    before = score_of(scheme).detach()
    optimizer = torch.optim.Adam(scheme.parameters(), lr=1e-3, eps=1e-12)
    score_of(scheme).sum().backward()
    optimizer.step()
    moved = (score_of(scheme).detach() - before).abs()
    score = scheme.score(LAYOUT)
    if isinstance(score, Factors):
        query, key = (factor.detach().abs().sum(-1) for factor in (score.query, score.key))
        most = 5e-3 * (query.max() + key.max()) * 1.05
        assert 0 < float(moved.max()) <= float(most)
    else:
        close(moved, torch.full_like(moved, 5e-3), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("name", "at_32"), [("diet_abs", 10), ("diet_abs_lin", 3)])
def test_the_gain_of_a_product_falls_with_its_rank(name, at_32):
    moves = []
    for rank in (8, 32, 128):
        scheme = scheme_of(name, rank=rank, n=12)
        assert scheme.gain == pytest.approx(at_32 * (32 / rank) ** 0.5)
        score = scheme.score(LAYOUT)
        query, key = (factor[0].detach() for factor in (score.query, score.key))  # (H, T, d_p)
        # each entry moves by the gain times the rate, in the direction of the other factor
        moves.append(scheme.gain * float((query.abs().sum(-1) + key.abs().sum(-1).mean()).mean()))
    assert moves == pytest.approx([moves[1]] * 3, rel=0.15)


# --- checkpoints -------------------------------------------------------------------------------


def without_gains(state: dict) -> dict:
    """A state dict from before there were gains."""
    return {name: value for name, value in state.items() if not name.endswith(".gain")}


@tiny.each([case for case in GAINED_CASES if case in tiny.NO_BACKEND])
def test_parameters_load_with_their_gain_or_with_gain_1(case):
    for gain in (1.0, 4.0):
        options = {"position_gain": gain} if case.scheme in GAINED else {}
        old = tiny.fresh(case.but(**options))
        for module in old.modules():
            if isinstance(module, ScoreParameters):
                module.gain = gain
        state = old.state_dict()
        new = tiny.fresh(case, seed=2)
        new.load_state_dict(without_gains(state) if gain == 1 else state)
        assert set(gains_in(new).values()) == {gain}
        close(tiny.logits(new), tiny.logits(old), rtol=0, atol=0)


def test_half_precision_leaves_the_gain_as_it_is():
    scheme = scheme_of("diet_rel", gain=30.1)
    fresh = scheme_of("diet_rel")
    fresh.load_state_dict(scheme.bfloat16().state_dict())
    assert fresh.gain == 30.1


def test_parameters_without_a_gain_are_one_model_s_start_as_well():
    """`--finetune-from-model` with a checkpoint of version 0.1, into a model with a new part."""
    old = tiny.model_to_change(
        Case("diet_rel", family="bert").but(segment_scheme="none", position_gain=1.0)
    )
    new = tiny.fresh(Case("diet_rel", family="bert").but(segment_scheme="input"), seed=2)
    parameters = warm_start.adapt(new, without_gains(old.state_dict()))
    new.load_state_dict(parameters)
    assert set(gains_in(new).values()) == {1.0}
    close(tiny.logits(new), tiny.logits(old), **TOLERANCE)


# --- the start ---------------------------------------------------------------------------------


@pytest.mark.parametrize("peak", [3.0, 5.0])
@pytest.mark.parametrize("causal", [False, True])
# Compressed keys are not tokens. tupe_a, whose product needs many positions, is tested below. fox
# has decays instead of peaks.
@pytest.mark.parametrize(
    "name",
    [name for name in LOCAL if name not in ("tupe_a", "fox") and not SCHEMES[name].compressed],
)
def test_a_local_start_has_its_peak_at_an_offset_of_its_own_in_every_head(name, causal, peak):
    heads = MAX_FIRST_OFFSET + 1
    options = {} if peak == 3 else {"peak": peak}  # 3 is the default
    if name == "diet_abs":
        options["rank"] = 32
    scheme = scheme_of(name, heads=heads, n=12, causal=causal, start="local", **options)
    if name == "tupe_r":  # its buckets alone
        torch.nn.init.zeros_(scheme.pos_q_linear.weight)
    score = score_of(scheme)[0].detach()  # (H, T, T)
    offsets = first_offsets(scheme.shape).tolist()
    assert len(set(offsets)) == heads
    assert offsets[0] == 0
    assert not causal or max(offsets) == 0  # no head looks at the future
    for head, offset in enumerate(offsets):
        diagonal = score[head].diagonal(offset)
        close(diagonal, torch.full_like(diagonal, peak), rtol=1e-4, atol=1e-4)
        others = score[head].tril() if causal else score[head].clone()
        others.diagonal(offset).fill_(-torch.inf)
        assert float(others.max()) < peak / 2


def offsets_of(heads: int, causal: bool, layer: int = 0) -> list[int]:
    limit = Limit(8, "--max-positions")
    return first_offsets(AttentionShape(heads, 8, 16, limit, limit, causal, layer=layer)).tolist()


def test_heads_beyond_the_offsets_begin_again():
    assert offsets_of(4, causal=False) == [0, -1, 1, -2]
    assert offsets_of(4, causal=True) == [0, -1, -2, -3]
    for causal, different in ((False, 2 * MAX_FIRST_OFFSET + 1), (True, MAX_FIRST_OFFSET + 1)):
        offsets = offsets_of(2 * different, causal)
        assert offsets == 2 * offsets[:different]
        assert len(set(offsets)) == different
        assert max(map(abs, offsets)) == MAX_FIRST_OFFSET


def test_only_layers_with_one_score_start_at_different_offsets():
    assert offsets_of(4, causal=False, layer=2) == [0, -1, 1, -2]
    offsets = [offsets_of(1, causal=False, layer=layer) for layer in range(4)]
    assert offsets == [[0], [-1], [1], [-2]]


@pytest.mark.parametrize("family", ["roberta", "transformer"])
@pytest.mark.parametrize("name", ["diet_rel", "diet_abs", "t5"])
def test_heads_that_share_a_score_look_elsewhere_in_every_layer(name, family):
    args = tiny.arguments(Case(name, family=family).but(position_sharing="head"))
    model = tiny.ARCH_MODEL_REGISTRY[args.arch].build_model(args, tiny.Task)
    peaks: dict[bool, list[int]] = {False: [], True: []}
    for scheme in (module for module in model.modules() if isinstance(module, SCHEMES[name])):
        middle = score_of(scheme)[0, 0, 5]  # (T,)
        peaks[scheme.shape.causal].append(int(middle.argmax()) - 5)
    assert peaks == {False: [0, -1], True: [0, -1] if family == "transformer" else []}


#: tokens -> attention of a head's offset at the start of a product of rank 32; `diet_rel` has 0.73
#: and 0.43
FIRST_ATTENTION = {128: 0.6, 512: 0.3}
PRODUCTS = {"DIET-ABS": "diet_abs", "TUPE-A": "tupe_a"}


def check_attention_at_the_offset(name: str) -> None:
    """Words contribute nothing to attention in the beginning, so the scores decide alone."""
    limit = Limit(512, "--max-positions")
    shape = AttentionShape(4, 32, 128, limit, limit)
    scheme = SCHEMES[PRODUCTS[name]].create(shape, start="local", peak=6.0)
    for tokens, least in FIRST_ATTENTION.items():
        layout = Layout.of_self_attention(torch.zeros(1, tokens, dtype=torch.bool))
        attention = scheme.score(layout).dense(layout)[0].detach().softmax(-1)  # (H, T, T)
        for head, offset in enumerate(first_offsets(shape).tolist()):
            assert float(attention[head].diagonal(offset).mean()) > least


@pytest.mark.parametrize("name", PRODUCTS)
def test_attention_of_a_product_starts_at_one_offset(name):
    check_attention_at_the_offset(name)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_a_local_start_takes_any_rank(rank):
    scheme = scheme_of("diet_abs", rank=rank, start="local")
    assert scheme.query.size(-1) == rank
    assert torch.isfinite(score_of(scheme)).all()


@pytest.mark.parametrize("name", LOCAL)
def test_a_blind_start_has_gain_1_as_in_the_papers_unless_one_is_given(name):
    args = tiny.arguments(case_of(name, position_start="blind"))
    config = tiny.PositionConfig.from_args(args)
    config.write_to(args)  # as a checkpoint has them
    for again in (config, tiny.PositionConfig.from_args(args)):
        gain = 1.0 if name in GAINED and name != "fox" else None  # tupe_a has none, fox its own
        assert (again.position_start, again.position_gain) == ("blind", gain)


@pytest.mark.parametrize("name", [name for name in LOCAL if name in GAINED])
def test_a_blind_start_takes_another_gain(name):
    both = case_of(name, position_start="blind", position_gain=5.0)
    assert tiny.PositionConfig.from_args(tiny.arguments(both)).position_gain == 5.0


MUTANTS: mutants.Table = [
    (check_gain, mutants.factors_without_the_gain, "diet_abs"),
    (check_attention_at_the_offset, mutants.equally_spaced_frequencies, "DIET-ABS"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)


def test_the_peaks_of_compressed_keys_are_spread_over_all_tokens():
    scheme = SCHEMES["diet_abs_lin"].create(AttentionShape(2, 8, 16, Limit(16, "q"), Limit(4, "k")))
    score = (scheme.amplify(scheme.query) @ scheme.amplify(scheme.key).mT)[0].detach()  # (16, 4)
    assert score.argmax(dim=1).tolist() == [slot for slot in range(4) for _ in range(4)]
    # the middle of a key's four tokens lies between the second and the third
    torch.testing.assert_close(score[1::4].diagonal(), score[2::4].diagonal())
    assert 2.5 < float(score[1::4].diagonal().min()) <= 3
