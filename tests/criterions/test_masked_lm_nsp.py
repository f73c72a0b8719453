"""Criterion ``masked_lm_nsp``: the sum of two means, which are logged."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.masked_lm import MaskedLmConfig
from fairseq.logging import metrics

import diet_fairseq  # noqa: F401  # registers
from diet_fairseq.criterions.diet_masked_lm_nsp import MaskedLmNspLoss
from diet_fairseq.errors import UserError

PAD = 1


class Model:
    """A model with fixed logits, which counts its calls."""

    def __init__(self, logits, **extra):
        self.logits, self.extra, self.calls = logits, extra, 0

    def __call__(self, src_tokens, masked_tokens=None, **_):
        self.calls += 1
        logits = self.logits if masked_tokens is None else self.logits[masked_tokens]
        return logits, self.extra

    def get_targets(self, sample, _):
        return sample["target"]


def sample_of(lengths, masked, seed):
    """A batch of as many pairs as there are lengths, with so many masked tokens each."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.full((len(lengths), max(lengths)), PAD)
    for row, number in enumerate(masked):
        target[row, :number] = torch.randint(4, 11, (number,), generator=generator)
    return {
        "net_input": {"src_tokens": torch.full_like(target, 5)},
        "target": target,
        "next_sentence": torch.randint(2, (len(lengths),), generator=generator),
        "nsentences": len(lengths),
        "ntokens": sum(lengths),
    }


@pytest.fixture
def criterion():
    words = SimpleNamespace(pad=lambda: PAD)
    return MaskedLmNspLoss(MaskedLmConfig(tpu=False), SimpleNamespace(target_dictionary=words))


def loss_of(criterion, sample, seed):
    """(loss, sample size, log), logits, next-sentence logits."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*sample["target"].shape, 11, generator=generator, requires_grad=True)
    nsp_logits = torch.randn(len(sample["target"]), 2, generator=generator, requires_grad=True)
    model = Model(logits, nsp_logits=nsp_logits)
    result = criterion(model, sample)
    assert model.calls == 1
    return result, logits, nsp_logits


def test_the_loss_of_a_batch_is_the_sum_of_two_means(criterion):
    sample = sample_of([9, 5, 7], [3, 1, 2], seed=1)
    (loss, size, log), logits, nsp_logits = loss_of(criterion, sample, seed=2)
    cross_entropy = torch.nn.functional.cross_entropy
    mlm = cross_entropy(logits.flatten(0, 1), sample["target"].flatten(), ignore_index=PAD)
    nsp = cross_entropy(nsp_logits, sample["next_sentence"])
    assert size == 6
    torch.testing.assert_close(loss / size, mlm + nsp)
    gradients = torch.autograd.grad(loss / size, [logits, nsp_logits])
    expected = torch.autograd.grad(mlm + nsp, [logits, nsp_logits])
    torch.testing.assert_close(gradients, expected)
    assert float(log["loss"]) == pytest.approx(float(loss.detach()))


def test_batches_weigh_tokens_alike_and_pairs_by_their_tokens(criterion):
    samples = [sample_of([9, 5], [3, 1], seed=1), sample_of([8, 8, 8], [2, 5, 1], seed=2)]
    results = [loss_of(criterion, sample, seed) for seed, sample in enumerate(samples)]
    total = sum(loss for (loss, _, _), _, _ in results) / sum(
        size for (_, size, _), _, _ in results
    )
    grads = torch.autograd.grad(total, [logits for _, logits, _ in results])
    # every masked token's gradient is (softmax - target) / 12
    for grad, (_, logits, _), sample in zip(grads, results, samples, strict=True):
        masked = sample["target"] != PAD
        expected = logits.softmax(-1)[masked] - torch.eye(11)[sample["target"][masked]]
        torch.testing.assert_close(grad[masked], expected.detach() / 12)
    sums = [
        float(torch.nn.functional.cross_entropy(nsp_logits.detach(), sample["next_sentence"]))
        for (_, _, nsp_logits), sample in zip(results, samples, strict=True)
    ]
    mlm = sum(float(log["mlm_loss"]) for (_, _, log), _, _ in results) / 12
    assert float(total) == pytest.approx(mlm + sums[0] * 4 / 12 + sums[1] * 8 / 12, rel=1e-5)


def test_both_losses_and_the_accuracy_are_logged(criterion):
    samples = [sample_of([9, 5], [3, 1], seed=1), sample_of([8, 8, 8], [2, 5, 1], seed=2)]
    results = [loss_of(criterion, sample, seed) for seed, sample in enumerate(samples)]
    with metrics.aggregate() as values:
        MaskedLmNspLoss.reduce_metrics([log for (_, _, log), _, _ in results])
    logged = values.get_smoothed_values()
    total = sum(float(loss) for (loss, _, _), _, _ in results)
    right = nsp = 0.0
    for (_, _, nsp_logits), sample in zip(results, samples, strict=True):
        right += float((nsp_logits.argmax(-1) == sample["next_sentence"]).sum())
        nsp += float(
            torch.nn.functional.cross_entropy(nsp_logits, sample["next_sentence"], reduction="sum")
        )
    assert logged["nsp_accuracy"] == pytest.approx(right / 5, abs=1e-3)
    assert logged["nsp_loss"] == pytest.approx(nsp / 5 / math.log(2), abs=1e-3)
    assert logged["loss"] == pytest.approx(total / 12 / math.log(2), abs=1e-3)
    assert logged["ppl"] == pytest.approx(2 ** float(logged["mlm_loss"]), rel=1e-2)


def test_without_masked_tokens_the_loss_is_zero(criterion):
    (loss, size, _), _, _ = loss_of(criterion, sample_of([4, 3], [0, 0], seed=1), seed=2)
    assert (float(loss), int(size)) == (0.0, 0)


def test_a_model_without_next_sentences_is_refused(criterion):
    sample = sample_of([4], [1], seed=1)
    with pytest.raises(UserError) as error:
        criterion(Model(torch.randn(1, 4, 11)), sample)
    assert str(error.value) == (
        "--criterion masked_lm_nsp needs a model that predicts the next sentence: use "
        "--arch bert_<scheme> and --nsp, or --task masked_lm and --criterion masked_lm"
    )


def test_a_task_without_next_sentences_is_refused(criterion):
    sample = sample_of([4], [1], seed=1)
    del sample["next_sentence"]
    with pytest.raises(UserError) as error:
        criterion(Model(torch.randn(1, 4, 11)), sample)
    assert str(error.value) == "--criterion masked_lm_nsp needs --task masked_lm_nsp: give both"
