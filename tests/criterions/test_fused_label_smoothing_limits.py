"""Limits of the fused criterion: beyond them it computes as fairseq's, or is refused."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    label_smoothed_nll_loss,
)
from fairseq.distributed import ModuleProxyWrapper

from diet_fairseq.criterions.diet_fused_label_smoothing import (
    FusedLabelSmoothedCrossEntropy,
    LinearCrossEntropy,
)
from diet_fairseq.models.adapters import PositionalDecoder
from diet_fairseq.models.diet_transformer import DietTransformerModel
from tests.criterions.test_fused_label_smoothing import assert_same, counted, losses, sample_of
from tests.patches import test_beam_search
from tests.support import tiny
from tests.support.tiny import VOCABULARY

__all__ = ["counted"]  # a fixture
BOTH = (FusedLabelSmoothedCrossEntropy, LabelSmoothedCrossEntropyCriterion)


def compare(model):
    ours, theirs = (losses(kind, model, sample_of()) for kind in BOTH)
    assert_same(ours, theirs)


class BoundedDecoder(PositionalDecoder):
    def output_layer(self, features):
        return super().output_layer(features).tanh()


class OtherTargets(DietTransformerModel):
    def get_targets(self, sample, net_output):
        return sample["target"].flip(0)


class SummedModel(DietTransformerModel):
    def forward(self, *args, **kwargs):
        x, extra = super().forward(*args, **kwargs)
        return x + x.sum(dim=-1, keepdim=True).sin(), extra


def with_an_output_layer_of_its_own(model):
    project = model.decoder.output_layer
    model.decoder.output_layer = lambda features: -project(features)


def with_a_bias(model):
    model.decoder.output_projection.bias = torch.nn.Parameter(torch.randn(VOCABULARY))


def renormalised(model):
    torch.nn.utils.parametrizations.weight_norm(model.decoder.output_projection)


CHANGES = {
    "a decoder's output layer": test_beam_search.as_another(BoundedDecoder, "decoder"),
    "a decoder's probabilities": test_beam_search.CHANGES["decoder"],
    "a model's probabilities": test_beam_search.CHANGES["model"],
    "a model's targets": test_beam_search.as_another(OtherTargets, "itself"),
    "a model's forward": test_beam_search.as_another(SummedModel, "itself"),
    "an object's output layer": with_an_output_layer_of_its_own,
    "a bias": with_a_bias,
    "a parametrization": renormalised,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_between_features_and_loss_use_fairseq_s_path(change, counted):
    model = tiny.model_to_change(tiny.named("sinusoidal"))
    change(model)
    compare(model)
    assert not counted


@pytest.mark.parametrize("options", [{}, {"full_context_alignment": True}], ids=str)
def test_a_model_without_features_uses_fairseq_s_path(options, counted):
    compare(tiny.stock("transformer_align", alignment_layer=0, **options))
    assert not counted


@pytest.mark.parametrize("model", ["transformer", "bart_base"])
def test_stock_models_are_fused_also_when_a_trainer_wraps_them(model, counted):
    model = tiny.stock(model)
    compare(model)
    ours, theirs = (losses(kind, ModuleProxyWrapper(Wrapped(model)), sample_of()) for kind in BOTH)
    assert_same(ours, theirs)
    assert len(counted) == 2


class Wrapped(torch.nn.Module):
    """A model that is wrapped as by fairseq's and PyTorch's data parallel."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


def test_double_precision_is_fused_and_half_precision_is_not(counted):
    model = tiny.stock()
    compare(model.double())
    assert len(counted) == 1
    compare(model.half())
    assert len(counted) == 1


def test_unreduced_losses_equal_fairseq_s():
    model = tiny.model_of(tiny.TRANSLATION[0])
    ours, theirs = (kind(tiny.Task, False, 0.1)(model, sample_of(), reduce=False) for kind in BOTH)
    assert ours[0].numel() > 1
    torch.testing.assert_close(ours[0], theirs[0])
    for name in ("loss", "nll_loss"):
        torch.testing.assert_close(ours[2][name], theirs[2][name])


def test_a_second_derivative_is_refused():
    x, weight = torch.randn(5, 3, requires_grad=True), torch.randn(7, 3, requires_grad=True)
    loss, _ = LinearCrossEntropy.apply(x, weight, torch.arange(5), 0.1)
    with pytest.raises(AssertionError, match="no second derivative"):
        torch.autograd.grad(loss, x, create_graph=True)


# bf16


def test_gradients_in_bf16_are_as_exact_as_fairseq_s():
    """Gradients of thousands of learned tokens cancel in a row of W's gradient."""
    weight = torch.randn(28, 16)
    target = torch.randint(28, (4000,))
    x = weight[target] + 0.1 * torch.randn(4000, 16)

    def gradients(kind, dtype):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (x.bfloat16(), weight.bfloat16())]
        if kind is LinearCrossEntropy:
            loss, _ = kind.apply(*leaves, target, 0.1)
        else:
            log_p = torch.log_softmax(leaves[0] @ leaves[1].T, dim=1, dtype=torch.float32)
            loss, _ = kind(log_p, target, 0.1)
        return torch.autograd.grad(loss, leaves)

    exact = gradients(label_smoothed_nll_loss, torch.float64)
    ours, theirs = (
        gradients(kind, torch.bfloat16) for kind in (LinearCrossEntropy, label_smoothed_nll_loss)
    )
    for our, their, expected in zip(ours, theirs, exact, strict=True):
        assert our.dtype is torch.bfloat16
        assert (our - expected).norm() < 1.2 * (their - expected).norm() < 0.1 * expected.norm()
