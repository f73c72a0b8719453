"""Tables and curves of what is finished in a grid."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy import stats

from ...errors import UserError
from .outcome import OF_ELECTRA

#: the measures a table shows where they are there, and the digits of each
MEASURES = {
    **{"BLEU": 2, "chrF": 2, "loss": 3, "mlm_loss": 3, "NSP accuracy": 3},
    **dict.fromkeys(OF_ELECTRA, 3),
}
#: what else a run has that is a number
TOTALS = ("seed", "parameters", "seconds", "updates done")
#: row -> what came out, seed by seed
Found = dict[str, dict[int, dict[str, Any]]]


def finite(values: Sequence[float]) -> bool:
    """Whether there is a spread of the values: not of losses of which one diverged."""
    return all(map(math.isfinite, values))


def spread(values: Sequence[float], digits: int) -> str:
    """The mean and, of several, their standard deviation."""
    text = f"{mean(values):.{digits}f}"
    if len(values) < 2:
        return text
    deviation = stdev(values) if finite(values) else math.nan
    return f"{text} ± {deviation:.{digits}f}"


def difference(ours: Sequence[float], theirs: Sequence[float], digits: int) -> str:
    """The mean difference of runs with the same seeds, its 95% interval, and p (paired t-test)."""
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    text = f"{mean(differences):+.{digits}f}"
    if not finite(differences) or not any(d != differences[0] for d in differences):
        return text
    half = stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
    p = stats.ttest_rel(ours, theirs).pvalue
    return f"{text} ± {half:.{digits}f} (p = {p:.2g})"


def of_seeds(text: str, counted: Sequence[int], row: Sequence[int]) -> str:
    """Name the seeds behind a figure where they are not all of its row."""
    if len(counted) in (0, len(row)):
        return text
    return f"{text}, seed{'s' * (len(counted) > 1)} {', '.join(map(str, counted))}"


def at_update(found: Found, update: int) -> Found:
    """The same runs, with the loss, and what else has a curve, after so many updates."""
    moved: Found = {}
    for row, seeds in found.items():
        for seed, one in seeds.items():
            losses = dict(map(tuple, one["curve"]))
            if update not in losses:
                validated = ", ".join(map(str, losses))
                raise UserError(f"--at {update}: {row} was validated after {validated} updates")
            kept = {"curve": one["curve"], "parameters": one["parameters"]}
            kept |= {name: dict(map(tuple, c))[update] for name, c in one.get("curves", {}).items()}
            moved.setdefault(row, {})[seed] = {**kept, "loss": losses[update]}
    return moved


def measures(runs: Sequence[dict[str, Any]], named: Sequence[str] = ()) -> dict[str, int]:
    """The measures that some run has, with their digits: those named, else all that are known.

    Of fine-tunings these are all dev sets.
    """
    given = {
        name: None
        for one in runs
        for name, value in one.items()
        if name not in TOTALS and isinstance(value, int | float)
    }
    known = [name for name in MEASURES if name in given]
    found = {name: MEASURES.get(name, 2) for name in named or known or given if name in given}
    if not found:
        raise UserError(
            f"there is no {' or '.join(named) or 'number'} in what came out, which has "
            f"{', '.join(given) or 'no numbers'}: correct the grid's measures, or what it runs"
        )
    return found


def markdown(
    found: Found,
    baseline: str | None = None,
    named: Sequence[str] = (),
    tested: dict[str, str] | None = None,
) -> str:
    """Rows against the means of their seeds; with a baseline, the difference from it.

    The difference is of the first measure; of all of them where the runs are fine-tunings, or
    predict next sentences.
    ``tested`` is what a test within each seed says of the rows against the baseline.
    """
    runs = [one for seeds in found.values() for one in seeds.values()]
    shown = measures(runs, named)
    [first, *_] = shown
    head = ["row", *map(titled, shown)]
    words = "mlm_loss" if "mlm_loss" in shown else "loss"
    of_words = words in shown and "generator_loss" not in shown  # ELECTRA's is a sum of two
    if of_words:
        head.append("perplexity")
    if baseline is not None:
        if baseline not in found:
            raise UserError(
                f"--baseline {baseline!r} is not finished with any of the seeds: take one of "
                f"{list(found)}"
            )
        compared = [first] if first in MEASURES and words == "loss" else list(shown)
        head += [f"{name.replace('_', ' ')} against {baseline}, same seeds" for name in compared]
    if tested:
        head.append("each seed's test set (paired bootstrap)")
    counted = all("parameters" in one for one in runs)
    timed = all("seconds" in one for one in runs)
    head += [*(["parameters"] if counted else []), *(["minutes"] if timed else []), "seeds"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row, seeds in found.items():
        results = list(seeds.values())
        cells = [row]
        for name in shown:
            having = [seed for seed, one in seeds.items() if name in one]
            values = [seeds[seed][name] for seed in having]
            text = spread(values, shown[name]) if values else ""
            cells.append(of_seeds(text, having, [*seeds]))
        if of_words:
            losses = [one[words] for one in results if words in one]
            cells.append(f"{perplexity(mean(losses)):.1f}" if losses else "")
        if baseline is not None:
            other = found[baseline]
            for name in compared:
                both = [s for s in seeds if s in other and name in seeds[s] and name in other[s]]
                ours, theirs = ([runs[s][name] for s in both] for runs in (seeds, other))
                differs = row != baseline and both
                text = difference(ours, theirs, shown[name]) if differs else ""
                cells.append(of_seeds(text, both, [*seeds]) if differs else "")
        if tested:
            cells.append(tested.get(row, ""))
        if counted:
            cells.append(f"{results[0]['parameters']:,}")
        if timed:
            cells.append(f"{mean(one['seconds'] for one in results) / 60:.1f}")
        lines.append("| " + " | ".join([*cells, ", ".join(map(str, seeds))]) + " |")
    signatures = {
        f"{name}: `{one[f'{name} signature']}`  "
        for one in runs
        for name in shown
        if f"{name} signature" in one
    }
    return "\n".join([*lines, *([""] if signatures else []), *sorted(signatures)])


def perplexity(nats: float) -> float:
    return math.inf if nats >= 700 else math.exp(nats)


def titled(measure: str) -> str:
    """What a measure is called in a table or beside an axis."""
    return measure.replace("_", " ") + (", nats" if measure.endswith("loss") else "")


def plot(found: Found, path: Path, metric: str = "loss") -> None:
    """A curve for every row: the mean of its seeds, and a band from the lowest to the highest.

    Raises:
        UserError: a run has no curve of the metric
    """
    for row, seeds in found.items():
        if metric != "loss" and any(metric not in one.get("curves", {}) for one in seeds.values()):
            raise UserError(f"--metric {metric}: {row} has none: take loss, or --rows that have it")

    def curve_of(one: dict[str, Any]) -> dict[int, float]:
        return dict(map(tuple, one["curve"] if metric == "loss" else one["curves"][metric]))

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for number, (row, seeds) in enumerate(found.items()):
        curves = [curve_of(one) for one in seeds.values()]
        updates = sorted(set.intersection(*(set(curve) for curve in curves)))
        points = [[curve[update] for curve in curves] for update in updates]
        style = ("-", "--", ":")[number // 10 % 3]
        (line,) = axes.plot(updates, [mean(values) for values in points], style, label=row)
        if len(curves) > 1:
            low, high = [min(values) for values in points], [max(values) for values in points]
            axes.fill_between(updates, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    label = (
        "loss on held-out text, nats" if metric == "loss" else f"{titled(metric)} (held-out text)"
    )
    axes.set(xlabel="updates", ylabel=label)
    figure.legend(loc="outside right upper")  # many rows would lie over the curves
    figure.savefig(path, dpi=150)
