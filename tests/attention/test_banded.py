"""The backend "banded": windows in blocks of queries, against the reference."""

from functools import partial
from importlib import import_module

import pytest
import torch

from diet_fairseq.attention.backends import BACKENDS, AttentionCall, CallShape, list_candidates
from diet_fairseq.attention.terms import compute_scores
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.positions.layout import Layout
from tests.support import mutants

# the package has the function under this name
banded = import_module("diet_fairseq.attention.backends.banded")
HEADS, WIDTH, LENGTH = 2, 6, 45
GAINED = ("diet_rel", "diet_abs")
close = partial(torch.testing.assert_close, rtol=1e-4, atol=2e-5)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(banded, "MIN_BLOCK", 4)


def build(name, causal=False):
    """A scheme with random parameters, or None."""
    if name == "none":
        return None
    limit = Limit(LENGTH, "--max-positions")
    shape = AttentionShape(HEADS, WIDTH, HEADS * WIDTH, limit, limit, causal)
    scheme = SCHEMES[name].create(shape, **({"gain": 1.0} if name in GAINED else {}))
    for parameter in scheme.parameters():
        torch.nn.init.normal_(parameter)
    return scheme


def compute(backend, layout, scheme, temperature=1.0):
    """The output for random queries, keys and values, and these."""
    torch.manual_seed(1)
    queries, keys = layout.query_positions.size(1), layout.key_positions.size(1)
    q, k, v = (torch.randn(2, HEADS, n, WIDTH).requires_grad_() for n in (queries, keys, keys))
    schemes = () if scheme is None else (scheme,)
    scores = compute_scores(schemes, layout, BACKENDS[backend].native_score)
    call = AttentionCall(q, k, v, scores, schemes, layout, 0.0, temperature)
    return BACKENDS[backend](call)[0], q, k, v


def results(backend, layout, scheme, **options):
    """The output at tokens, and the gradients of queries, keys, values and parameters."""
    out, *leaves = compute(backend, layout, scheme, **options)
    if layout.hidden is not None:
        out = out.masked_fill(layout.hidden[:, None, -out.size(2) :, None], 0.0)
    leaves += [] if scheme is None else [*scheme.parameters()]
    gradient = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    return out, *torch.autograd.grad(out, leaves, gradient)


def layouts(causal, queries=None):
    """Without padding, with padding on the right and left, and a sentence of padding only."""
    slots = torch.arange(LENGTH)
    right, left = slots >= torch.tensor([[LENGTH], [17]]), slots < torch.tensor([[30], [0]])
    empty = slots >= torch.tensor([[LENGTH], [0]])
    for padding in (torch.zeros_like(right), right, left, empty):
        yield Layout.of_self_attention(padding, causal, queries)


def check_blocks(call):
    name, window, causal = call
    scheme = build(name, causal)
    for layout in layouts(causal):
        layout = layout.with_window(window)
        options = {"temperature": 0.7}
        computed = results("banded", layout, scheme, **options)
        close(computed, results("reference", layout, scheme, **options))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 4, 9, 30])
@pytest.mark.parametrize("name", ["none", "diet_rel", "diet_abs", "alibi"])
def test_blocks_compute_what_the_reference_does_forward_and_backward(name, window, causal):
    check_blocks((name, window, causal))


@torch.no_grad()
@pytest.mark.parametrize("name", ["none", "diet_rel", "diet_abs"])
@pytest.mark.parametrize("fused_keys", [1, 1000])
def test_inference_equals_the_reference_with_and_without_fused_attention(
    name, fused_keys, monkeypatch
):
    monkeypatch.setattr(banded, "FUSED_KEYS", fused_keys)
    monkeypatch.setattr(banded, "reference" if fused_keys == 1 else "attend_fused", None)
    scheme = build(name)
    for layout in layouts(causal=False):
        layout = layout.with_window(5)
        close(compute("banded", layout, scheme)[0], compute("reference", layout, scheme)[0])


def check_decoding(call):
    name, queries = call
    scheme = build(name, causal=True)
    for layout in layouts(True, queries):
        layout = layout.with_window(5)
        close(results("banded", layout, scheme), results("reference", layout, scheme))


@pytest.mark.parametrize("name", ["none", "diet_rel", "diet_abs"])
@pytest.mark.parametrize("queries", [1, 6])
def test_decoding_drops_the_keys_that_no_query_sees(name, queries):
    check_decoding((name, queries))


@pytest.mark.parametrize("name", ["shaw", "cope"])
def test_schemes_that_blocks_do_not_serve_are_computed_elsewhere(name):
    layout = next(layouts(causal=True)).with_window(3)
    call = CallShape((build(name, True),), layout, (2, HEADS, WIDTH), torch.float32, 0.0)
    assert "banded" not in list_candidates(call)


def test_no_block_sees_another_key_with_dropout():
    """The weights that are left, from one-hot values, are within the window."""
    layout = next(layouts(causal=False)).with_window(4)
    q, v = torch.zeros(1, 1, LENGTH, LENGTH), torch.eye(LENGTH)[None, None]
    weights, _ = BACKENDS["banded"](AttentionCall(q, q, v, (), (), layout, 0.3))
    far = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs() > 4
    assert (weights[0, 0][far] == 0).all()
    share = (weights[0, 0][~far] == 0).float().mean()
    assert 0.2 < share < 0.4


MUTANTS: mutants.Table = [
    (check_blocks, mutants.blocks_without_the_keys_after_them, ("none", 4, False)),
    (check_blocks, mutants.blocks_that_see_padding, ("none", 4, False)),
    (check_blocks, mutants.scores_of_the_next_offset_in_blocks, ("diet_rel", 9, True)),
    (check_decoding, mutants.one_key_too_few_in_decoding, ("none", 1)),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
