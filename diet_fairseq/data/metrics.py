"""What GLUE's tasks are measured by, over all examples of a set at once, in percent."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats
from sklearn import metrics

from ..errors import UserError

#: (labels, predictions, the positive label's number) -> from -1 or 0 to 1
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
    """Where one side is the same throughout, nothing goes with anything: 0."""
    if len(targets) < 2:
        return 0.0
    return float(np.nan_to_num(function(found, targets).statistic))


def chosen(names: str, regression: bool, positive: int | None) -> tuple[str, ...]:
    """The metrics of a comma-separated list, checked; none: the usual ones.

    Args:
        positive: number of the label that F1 is of; None: no label has the name given
    """
    known = REGRESSION if regression else CLASSIFICATION
    wanted = tuple(names.split(",")) if names else tuple(REGRESSION if regression else ["accuracy"])
    for name in wanted:
        if name not in known:
            kind = "regression" if regression else "classification"
            raise UserError(
                f"--metrics {name} is none of a {kind}'s: take one or more of {', '.join(known)}, "
                "parted by commas"
            )
    if "f1" in wanted and positive is None:
        raise UserError(
            "--metrics f1 is of one label, and --positive-label names none of the data's: name one"
        )
    return wanted


def percent(
    name: str, targets: Sequence[float], found: Sequence[float], positive: int | None = 1
) -> float:
    """The metric's value times 100, rounded to three digits behind the point."""
    with warnings.catch_warnings():
        # fairseq measures single batches, too, in which all may be alike
        warnings.simplefilter("ignore")
        return round(100 * METRICS[name](np.asarray(targets), np.asarray(found), positive), 3)
