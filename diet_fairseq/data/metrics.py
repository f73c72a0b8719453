"""The metrics of GLUE's tasks, over all examples of a set, in percent."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats
from sklearn import metrics

from ..errors import UserError

#: (labels, predictions, index of the positive label) -> a number up to 1
Metric = Callable[[np.ndarray, np.ndarray, int | None], float]

CLASSIFICATION: dict[str, Metric] = {
    "accuracy": lambda targets, found, _: metrics.accuracy_score(targets, found),
    "f1": lambda targets, found, positive: metrics.f1_score(
        targets == positive, found == positive, zero_division=0.0
    ),
    "matthews": lambda targets, found, _: metrics.matthews_corrcoef(targets, found),
}
REGRESSION: dict[str, Metric] = {
    "pearson": lambda targets, found, _: correlation(stats.pearsonr, targets, found),
    "spearman": lambda targets, found, _: correlation(stats.spearmanr, targets, found),
}
METRICS = CLASSIFICATION | REGRESSION


def correlation(function: Callable, targets: np.ndarray, found: np.ndarray) -> float:
    """The correlation, which is 0 if one side is constant."""
    if len(targets) < 2:
        return 0.0
    return float(np.nan_to_num(function(found, targets).statistic))


def chosen(names: str, regression: bool, positive: int | None) -> tuple[str, ...]:
    """Check the metrics in a comma-separated list; an empty one gives the defaults.

    Args:
        positive: index of the label whose F1 is computed; None: there is no label of that name
    """
    known = REGRESSION if regression else CLASSIFICATION
    wanted = tuple(names.split(",")) if names else tuple(REGRESSION if regression else ["accuracy"])
    for name in wanted:
        if name not in known:
            kind = "regression" if regression else "classification"
            raise UserError(
                f"--metrics {name} is not a measure of {kind}: take one or more of "
                f"{', '.join(known)}, separated by commas"
            )
    if "f1" in wanted and positive is None:
        raise UserError(
            "--metrics f1 is computed for one label, but --positive-label names none of the data: "
            "name one of its labels"
        )
    return wanted


def percent(
    name: str, targets: Sequence[float], found: Sequence[float], positive: int | None = 1
) -> float:
    """The metric's value times 100, rounded to three decimals."""
    with warnings.catch_warnings():
        # fairseq also evaluates single batches, which may be constant
        warnings.simplefilter("ignore")
        return round(100 * METRICS[name](np.asarray(targets), np.asarray(found), positive), 3)
