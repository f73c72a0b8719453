"""GLUE's metrics are those of a whole set, and are chosen by name."""

import numpy as np
import pytest
import torch
from fairseq.logging import metrics as fairseq_metrics
from scipy import stats
from sklearn.metrics import f1_score

from diet_fairseq.criterions.diet_glue import GlueLoss
from diet_fairseq.data.metrics import METRICS, chosen, percent
from diet_fairseq.errors import UserError


def logged(batches, names, positive=1):
    """What the criterion makes of a set that comes in batches, and of each of them."""
    with fairseq_metrics.aggregate(new_root=True) as whole:
        parts = []
        for target, found in batches:
            log = {"loss": torch.tensor(0.0), "sample_size": len(target), "metrics": names}
            log |= {"target": np.array(target), "found": np.array(found), "positive": positive}
            with fairseq_metrics.aggregate() as part:
                GlueLoss.reduce_metrics([log])
            parts.append(part.get_smoothed_values())
    return whole.get_smoothed_values(), parts


def test_f1_is_that_of_the_whole_set_and_no_mean_of_batches():
    batches = [([1, 1, 0, 0], [1, 1, 1, 0]), ([0, 0, 0, 1], [0, 0, 1, 0])]
    whole, parts = logged(batches, ("f1", "accuracy"))
    target, found = ([*batches[0][side], *batches[1][side]] for side in (0, 1))
    assert whole["f1"] == pytest.approx(100 * f1_score(target, found), abs=1e-3)
    mean = np.mean([part["f1"] for part in parts])
    assert abs(whole["f1"] - mean) > 10
    assert whole["accuracy"] == 62.5


def test_correlations_are_those_of_the_whole_set():
    draw = np.random.default_rng(1)
    target = draw.normal(size=50)
    found = target + draw.normal(size=50)
    batches = [(target[n : n + 7], found[n : n + 7]) for n in range(0, 50, 7)]
    whole, _ = logged(batches, ("pearson", "spearman"))
    for name, function in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        assert whole[name] == pytest.approx(100 * function(target, found).statistic, abs=1e-3)


def test_f1_is_of_the_label_named():
    target, found = [0, 0, 0, 1], [0, 0, 1, 1]
    assert percent("f1", target, found, 1) != percent("f1", target, found, 0)
    assert percent("f1", target, found, 0) == 80.0


@pytest.mark.parametrize("name", ["matthews", "pearson", "spearman"])
@pytest.mark.parametrize(("target", "found"), [([0, 1, 1], [1, 1, 1]), ([1], [1])])
def test_a_guess_that_is_always_the_same_has_no_correlation(name, target, found):
    assert percent(name, target, found) == 0.0


@pytest.mark.parametrize(
    ("names", "regression", "found"),
    [
        ("", False, ("accuracy",)),
        ("", True, ("pearson", "spearman")),
        ("matthews,accuracy", False, ("matthews", "accuracy")),
    ],
)
def test_metrics_are_those_named_or_the_usual_ones(names, regression, found):
    assert chosen(names, regression, 1) == found


def test_metrics_that_do_not_fit_are_refused():
    with pytest.raises(UserError) as error:
        chosen("accuracy,pearson", False, 1)
    assert str(error.value) == (
        "--metrics pearson is not a measure of classification: take one or more of accuracy, "
        "f1, matthews, separated by commas"
    )
    with pytest.raises(UserError) as error:
        chosen("f1", False, None)
    assert str(error.value) == (
        "--metrics f1 is computed for one label, but --positive-label names none of the data: "
        "name one of its labels"
    )
    assert set(METRICS) == {"accuracy", "f1", "matthews", "pearson", "spearman"}
