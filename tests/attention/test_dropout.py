"""Our dropout is PyTorch's in distribution, scale and gradient."""

import pytest
import torch
import torch.nn.functional as F
from fairseq.modules import FairseqDropout
from torch import nn

from diet_fairseq.attention.dropout import CHUNK, Dropout, dropout, softmax_dropout
from tests.support import tiny

MANY = 1_000_000


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_zeros_come_with_probability_p_and_the_rest_is_scaled(p, dtype):
    torch.manual_seed(1)
    out = dropout(torch.ones(MANY, dtype=dtype), p)
    assert out.dtype == dtype
    deviation = (p * (1 - p) / MANY) ** 0.5
    assert abs(float(out.eq(0).double().mean()) - p) < 5 * deviation + 2**-16
    rounding = 1e-2 if dtype == torch.bfloat16 else 2e-4
    assert float(out.max()) == pytest.approx(1 / (1 - p), rel=rounding)
    assert len(out.unique()) == 2


def test_neighbours_are_dropped_independently():
    """One draw decides four neighbours."""
    torch.manual_seed(1)
    dropped = dropout(torch.ones(MANY, 4), 0.3).eq(0).double()
    assert torch.allclose(torch.corrcoef(dropped.T), torch.eye(4, dtype=torch.double), atol=5e-3)
    assert torch.allclose(dropped.mean(0), torch.tensor(0.3, dtype=torch.double), atol=3e-3)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5, 7), (0, 4)])
def test_the_gradient_is_that_of_the_elements_not_dropped(shape):
    x = torch.rand(shape, requires_grad=True)
    out = dropout(x, 0.5)
    assert out.shape == x.shape
    out.sum().backward()
    torch.testing.assert_close(x.grad * x, out)


def test_the_same_seed_drops_the_same():
    torch.manual_seed(7)
    first = dropout(torch.ones(100), 0.5)
    torch.manual_seed(7)
    assert torch.equal(dropout(torch.ones(100), 0.5), first)
    assert not torch.equal(dropout(torch.ones(100), 0.5), first)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (3, 700, 513), (0, 4)])
def test_softmax_and_dropout_in_one_are_softmax_and_then_dropout(shape, both):
    """Also where the weights before dropout have a gradient, as in the loss of alignments."""
    assert torch.tensor(shape).prod() > CHUNK or max(shape) < 100
    score = 3 * torch.randn(shape)
    score.view(-1)[::5] = float("-inf")
    results = []
    for compute in (softmax_dropout, softmax_then_dropout):
        torch.manual_seed(7)
        x = score.clone().requires_grad_()
        dropped, weights = compute(x, 0.3)
        factors = torch.randn(2, *shape)
        loss = (factors[0] * dropped).sum() + both * (factors[1] * weights).sum()
        results.append((dropped, weights, *torch.autograd.grad(loss, x)))
    torch.testing.assert_close(*results)


def softmax_then_dropout(score, p):
    weights = score.softmax(-1)
    return dropout(weights, p), weights


@pytest.mark.parametrize("p", [0.0, 1e-9, 1 - 1e-9, 1.0])
def test_tiny_probabilities_take_pytorch_s_dropout(p):
    torch.manual_seed(7)
    ours = dropout(torch.ones(100), p)
    torch.manual_seed(7)
    assert torch.equal(ours, F.dropout(torch.ones(100), p))


@pytest.mark.parametrize("family", ["transformer", "roberta"])
def test_a_model_has_no_other_dropout_and_uses_it_in_training_alone(family):
    case = next(c for c in tiny.CASES if c.family == family and c.scheme == "diet_rel")
    model = tiny.fresh(case, dropout=0.5, attention_dropout=0.5)
    modules = [
        part for part in model.modules() if isinstance(part, Dropout | FairseqDropout | nn.Dropout)
    ]
    ours = [part for part in modules if isinstance(part, Dropout)]
    assert len(ours) == sum(isinstance(m, FairseqDropout) for m in tiny.stock(family).modules())
    model.eval()
    assert torch.equal(tiny.logits(model), tiny.logits(model))
    model.train()
    assert not torch.equal(tiny.logits(model), tiny.logits(model))


@pytest.mark.parametrize(
    ("names", "retained"),
    [
        (None, {"encoder", "encoder.layers.0", "decoder.layers.1.encoder_attn"}),
        (["TransformerEncoder"], {"encoder"}),
        (["TransformerEncoderLayer"], {"encoder.layers.0"}),
        (["MultiheadAttention"], {"decoder.layers.1.encoder_attn"}),
    ],
)
def test_dropout_is_retained_in_the_modules_that_are_named(names, retained):
    """``--retain-dropout-modules``, which takes the names of fairseq's own classes."""
    model = tiny.fresh(tiny.named("diet_rel"), dropout=0.5, attention_dropout=0.5)
    model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=names)
    for name in ("encoder", "encoder.layers.0", "decoder.layers.1.encoder_attn"):
        dropout_module = model.get_submodule(name).dropout_module
        assert (dropout_module.active_p > 0) == (name in retained)
