"""The losses of fine-tuning: their units, and what they are means of."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics

from diet_fairseq.criterions.diet_glue import GlueLoss
from diet_fairseq.criterions.diet_question_answering import (
    HEAD,
    QuestionAnsweringCriterionConfig,
    QuestionAnsweringLoss,
)


def reduced_loss(criterion, **log):
    with metrics.aggregate(new_root=True) as found:
        criterion.reduce_metrics([{"loss": 2.0, "sample_size": 4, **log}])
    return found.get_smoothed_values()["loss"]


def test_losses_are_to_base_2():
    for criterion in (GlueLoss, QuestionAnsweringLoss):
        assert reduced_loss(criterion) == pytest.approx(0.5 / math.log(2), abs=1e-4)


def test_the_loss_is_the_mean_of_both_ends():
    words = SimpleNamespace(pad=lambda: 1)
    criterion = QuestionAnsweringLoss(
        QuestionAnsweringCriterionConfig(),
        SimpleNamespace(source_dictionary=words, target_dictionary=words),
    )

    class Model:
        training, classification_heads = True, {HEAD: None}

        def __call__(self, src_tokens, **_):
            return torch.zeros(*src_tokens.shape, 2), {}

    sample = {
        "net_input": {"src_tokens": torch.tensor([[0, 5, 2, 6]])},
        "target": torch.tensor([[1, 3]]),
        "ntokens": 4,
    }
    loss, size, _ = criterion(Model(), sample)
    assert (float(loss), size) == (pytest.approx(math.log(4)), 1)
