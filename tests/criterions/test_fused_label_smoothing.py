"""``fused_label_smoothed_cross_entropy`` is fairseq's ``label_smoothed_cross_entropy``."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

from diet_fairseq.criterions import diet_fused_label_smoothing as fused
from diet_fairseq.criterions.diet_fused_label_smoothing import FusedLabelSmoothedCrossEntropy
from tests.support import tiny
from tests.support.tiny import PAD, SOURCES, TARGETS

close = torch.testing.assert_close


def sample_of(left_pad: bool = False):
    source, read = tiny.padded(SOURCES, True), tiny.padded(TARGETS, left_pad)
    target = tiny.padded([sentence.roll(-1) for sentence in TARGETS], left_pad)
    lengths = source.ne(PAD).sum(1)
    net_input = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": read}
    return {"net_input": net_input, "target": target, "ntokens": int(target.ne(PAD).sum())}


def losses(kind, model, sample, smoothing=0.1, **options):
    """The loss, what is logged, the gradients."""
    criterion = kind(tiny.Task, sentence_avg=False, label_smoothing=smoothing, **options)
    loss, size, logged = criterion(model, sample)
    return loss, size, logged, tiny.gradients(model, loss)


def assert_same(ours, theirs):
    close(ours[0], theirs[0], **tiny.TOLERANCE)
    assert ours[1] == theirs[1]
    assert ours[2].keys() == theirs[2].keys()
    for name, value in theirs[2].items():
        close(torch.as_tensor(ours[2][name]), torch.as_tensor(value), **tiny.TOLERANCE)
    tiny.assert_same(ours[3], theirs[3])


@pytest.fixture
def counted(monkeypatch):
    """A list with an entry for every call of the fused path."""
    times = []
    apply = fused.LinearCrossEntropy.apply
    monkeypatch.setattr(
        fused.LinearCrossEntropy, "apply", lambda *args: times.append(1) or apply(*args)
    )
    return times


MODELS = {
    "ours": lambda: tiny.model_to_change(tiny.TRANSLATION[0]),
    "stock": tiny.stock,
    "tied": lambda: tiny.fresh(tiny.TRANSLATION[0], share_all_embeddings=True),
}


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_losses_and_gradients_equal_fairseq_s(smoothing, turn, monkeypatch, counted):
    """Every kind of model, and every number of rows at a time, with every smoothing."""
    kinds = [*MODELS.values()]
    monkeypatch.setattr(fused, "ROWS", (1, 4, 128)[(turn + int(10 * smoothing)) % 3])
    model = kinds[turn]()
    for left_pad in (False, True):
        ours, theirs = (
            losses(kind, model, sample_of(left_pad), smoothing)
            for kind in (FusedLabelSmoothedCrossEntropy, LabelSmoothedCrossEntropyCriterion)
        )
        assert_same(ours, theirs)
    assert counted


@tiny.each(tiny.first_of_each_scheme(tiny.TRANSLATION))
def test_models_of_every_scheme_take_the_fused_path(case, counted, monkeypatch):
    model = tiny.model_to_change(case)
    monkeypatch.setattr(model.decoder.output_projection, "forward", None)  # no logits of the batch
    losses(FusedLabelSmoothedCrossEntropy, model, sample_of())
    assert counted


def test_without_gradients_the_loss_is_the_same(counted):
    model, sample = tiny.model_of(tiny.TRANSLATION[0]), sample_of()
    with_them = losses(FusedLabelSmoothedCrossEntropy, model, sample)[0]
    with torch.no_grad():
        criterion = FusedLabelSmoothedCrossEntropy(tiny.Task, False, 0.1)
        with torch.profiler.profile() as profile:
            assert criterion(model, sample)[0] == with_them
    assert "aten::addmm_" not in {event.key for event in profile.key_averages()}


@pytest.mark.parametrize("options", [{"report_accuracy": True}, {"ignore_prefix_size": 1}])
def test_options_that_need_all_logits_use_fairseq_s_path(options, counted):
    model, sample = tiny.model_of(tiny.TRANSLATION[0]), sample_of()
    ours, theirs = (
        losses(kind, model, sample, **options)
        for kind in (FusedLabelSmoothedCrossEntropy, LabelSmoothedCrossEntropyCriterion)
    )
    assert_same(ours, theirs)
    assert not counted


def test_extreme_logits_overflow_nothing():
    x, weight = torch.eye(4) * 1e4, torch.eye(4)
    x.requires_grad_()
    loss, nll = fused.LinearCrossEntropy.apply(x, weight, torch.tensor([0, 1, 2, 0]), 0.0)
    assert loss == nll == 1e4  # the last target is the one that the model rules out
    loss.backward()
    assert x.grad.isfinite().all()


def test_the_gradient_is_scaled_by_that_of_the_loss():
    x, weight = torch.randn(5, 3, requires_grad=True), torch.randn(7, 3, requires_grad=True)
    target = torch.arange(5)
    grads = [
        torch.autograd.grad(
            scale * fused.LinearCrossEntropy.apply(x, weight, target, 0.1)[0], (x, weight)
        )
        for scale in (1, 3)
    ]
    for plain, scaled in zip(*grads, strict=True):
        close(3 * plain, scaled)
