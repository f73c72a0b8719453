"""FoX and PoPE: starts, forms, and the same numbers as in other libraries."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from diet_fairseq.attention.moving import sum_steps
from diet_fairseq.positions.fox import Fox
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.pope import Pope
from tests.positions.test_schemes import scheme_of
from tests.support import tiny

close = torch.testing.assert_close


def fox_score(scheme: Fox, x: Tensor) -> Tensor:
    """(B, H, T, T): the score for the layer's input x (B, T, d)."""
    layout = Layout.without_padding(x.size(1), x.device, scheme.shape.causal)
    moved = sum_steps(scheme, x, layout)
    return scheme.score(layout.move(moved, moved)).dense(layout)


@pytest.mark.parametrize("heads", [1, 4, 5])
def test_a_local_start_of_fox_fades_to_1_e_in_1_to_32_tokens(heads):
    scheme = scheme_of("fox", heads=heads, causal=True, start="local", gain=7.0)
    torch.nn.init.zeros_(scheme.gates.weight)
    score = fox_score(scheme, torch.zeros(1, 130, scheme.shape.embed_dim))[0]
    times = (-1 / score[:, 1, 0].detach()).tolist()
    ratios = [second / first for first, second in pairwise(times)]
    close(torch.tensor(ratios), torch.full((heads - 1,), 32 ** (1 / heads)))
    assert 1 <= times[0] <= times[-1] <= 32
    assert times[0] * times[-1] == pytest.approx(32)
    for head, time in enumerate(times):
        assert score[head, 129, 29].item() == pytest.approx(-100 / time, rel=1e-4)


def test_a_blind_start_of_fox_halves_earlier_tokens_at_every_token():
    scheme = scheme_of("fox", causal=True, start="blind", gain=1.0)
    std = float(scheme.gates.weight.detach().std())
    assert 0.005 < std < 0.05
    score = fox_score(scheme, torch.zeros(1, 9, scheme.shape.embed_dim))
    close(score[0, :, 8, 5], torch.full((scheme.shape.heads,), -3 * math.log(2)))


def test_an_update_moves_the_logit_of_fox_s_gates_by_the_gain():
    scheme = scheme_of("fox", gain=5.0, start="local", fox_gates="head")
    x = tiny.vectors(1, 2, scheme.shape.embed_dim)
    before = scheme.amplify(scheme.gate_bias).detach()
    optimizer = torch.optim.Adam(scheme.parameters(), lr=1e-3, eps=1e-12)
    fox_score(scheme, x).sum().backward()
    optimizer.step()
    moved = scheme.amplify(scheme.gate_bias).detach() - before
    close(moved, torch.full_like(moved, -5e-3))


def test_gates_of_heads_are_slopes_of_the_distance():
    scheme = scheme_of("fox", fox_gates="head")
    scheme.gate_bias.data.normal_()
    slopes = F.softplus(-scheme.gain * scheme.gate_bias)
    score = fox_score(scheme, tiny.vectors(2, 9, scheme.shape.embed_dim))
    places = torch.arange(9)
    distances = (places[:, None] - places).abs()
    close(score, (-slopes[:, None, None] * distances).expand(2, -1, -1, -1))


def test_fox_is_symmetric_in_encoders_and_has_the_decoder_s_score_for_earlier_keys():
    encoder, decoder = (scheme_of("fox", causal=causal) for causal in (False, True))
    decoder.load_state_dict(encoder.state_dict())
    x = tiny.vectors(2, 9, encoder.shape.embed_dim)
    score = fox_score(encoder, x)
    close(score, score.mT)
    close(score.tril(), fox_score(decoder, x).tril())


def test_cable_s_released_code_is_fox_with_gates_of_the_other_sign():
    """axiomlab/Cable, src/Cable.py: differences of cumsum(-softplus(h(x)))."""
    scheme = scheme_of("fox", causal=True)
    x = tiny.vectors(2, 9, scheme.shape.embed_dim)
    h = -(x @ scheme.gates.weight.T + scheme.gain * scheme.gate_bias)
    b = torch.cumsum(-F.softplus(h), dim=1).permute(0, 2, 1)
    close(fox_score(scheme, x), b.unsqueeze(3) - b.unsqueeze(2))


def test_fox_after_zero_is_almost_no_score_and_learns():
    scheme = scheme_of("fox")
    scheme.zero()
    score = fox_score(scheme, tiny.vectors(1, 41, scheme.shape.embed_dim))
    close(score[..., 0, 40], torch.full_like(score[..., 0, 40], -40 / 4096), rtol=1e-3, atol=0)
    score.sum().backward()
    for parameter in scheme.parameters():
        assert float(parameter.grad.abs().max()) > 1e-3


def test_pope_s_shift_beyond_a_bound_counts_as_the_bound_and_comes_back():
    scheme, bound = scheme_of("pope"), scheme_of("pope")
    scheme.delta.data.fill_(0.5)
    q, k = (tiny.vectors(1, 2, 9, scheme.shape.head_dim, seed=seed) for seed in (1, 2))
    layout = Layout.without_padding(9, q.device)
    for a, b in zip(scheme.transform(q, k, layout), bound.transform(q, k, layout), strict=True):
        close(a, b)
    scheme.transform(q, k, layout)[1].sum().backward()
    assert bool(scheme.delta.grad.all())


# --- x-transformers ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
def test_fox_equals_x_transformers(causal):
    """In encoders with tied gates: x-transformers has other gates for later keys."""
    x_transformers = pytest.importorskip("x_transformers.x_transformers")
    ours = scheme_of("fox", heads=4, causal=causal)
    heads, width = ours.shape.heads, ours.shape.embed_dim
    theirs = x_transformers.DataDependentAlibi(width, heads, causal=causal)
    linear = theirs.to_forget_gates[0]
    with torch.no_grad():
        torch.nn.init.normal_(ours.gates.weight)
        torch.nn.init.normal_(ours.gate_bias, std=1 / ours.gain)
        copies = 1 if causal else 2
        linear.weight.copy_(ours.gates.weight.repeat(copies, 1))
        linear.bias.copy_(ours.gain * ours.gate_bias.repeat(copies))
    x = tiny.vectors(3, 37, width)
    score, expected = fox_score(ours, x), theirs(x)
    if causal:
        score, expected = score.tril(), expected.tril()
    close(score, expected, rtol=1e-5, atol=1e-4)
    gradient = torch.autograd.grad(tiny.some_loss(score), ours.gates.weight)[0]
    other = torch.autograd.grad(tiny.some_loss(expected), linear.weight)[0]
    other = other.unflatten(0, (copies, heads)).sum(0)
    assert float((gradient - other).norm() / other.norm()) < 1e-5


@pytest.mark.slow
def test_pope_equals_x_transformers():
    x_transformers = pytest.importorskip("x_transformers.x_transformers")
    ours = scheme_of("pope", heads=4)
    heads, width = ours.shape.heads, ours.shape.head_dim
    theirs = x_transformers.PolarEmbedding(width, heads)
    with torch.no_grad():
        theirs.learned_bias.uniform_(-6.3, 0.3)
        ours.delta.copy_(theirs.learned_bias)
    q, k = (tiny.vectors(3, heads, 37, width, seed=seed) for seed in (1, 2))
    frequencies, bias = theirs(torch.arange(37))
    expected = x_transformers.apply_polar_pos_emb(q, frequencies)
    expected = expected @ x_transformers.apply_polar_pos_emb(k, frequencies + bias).mT
    turned_q, turned_k = ours.transform(q, k, Layout.without_padding(37, q.device))
    assert turned_q.size(-1) == 2 * width == Pope.widening * width
    scale = width**0.5  # queries are scaled before and after
    turned_q, _ = ours.transform(q / scale, k, Layout.without_padding(37, q.device))
    close(scale * turned_q @ turned_k.mT, expected, rtol=1e-5, atol=1e-4)
