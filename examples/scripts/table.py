"""Collect the scores of all models as CSV, and as a table: means, deviations and paired tests."""

import json
import math
import os
import re
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pandas import DataFrame, Series, isna
from scipy import stats

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.files import atomic_file
from diet_fairseq.text.lines import read_lines
from diet_fairseq.text.scores import Pair, bootstrap_means, paired_bootstrap

COLUMNS = (
    "folder,scheme,size,seeds,test,BLEU,chrF,parameters,minutes,words/s,memory (GB),"
    "BLEU signature,chrF signature"
)  # and a column of each metric of the config
#: columns of a training, which an ensemble lacks, and their form in the table
OF_TRAINING = {
    "parameters": "{:,.0f}",
    "minutes": "{:.1f}",
    "words/s": "{:,.0f}",
    "memory (GB)": "{:.1f}",
}


def read_row(
    test: str, folder: str, description: dict[str, str], metrics: Iterable[str] = ()
) -> dict[str, object]:
    """The scores of a model on a test set; its parameters, and the measures of its training."""
    evaluation = Path(folder, f"evaluation-{test}")
    scores = json.loads((evaluation / "scores.json").read_text(encoding="utf-8"))
    row = {"folder": folder, "test": test, **description, **scores}
    for metric in metrics:
        row[metric] = read_metric(folder, test, metric)["score"]
    if (log := Path(folder, "train.log")).exists():  # an ensemble has none
        text = log.read_text(encoding="utf-8")
        parameters = re.findall(r"shared model params: ([\d,]+)", text)[-1]
        plan = json.loads(Path(folder, "plan.json").read_text(encoding="utf-8"))
        speeds = [float(speed) for speed in re.findall(r'"(?:train_)?wps": "([\d.]+)"', text)]
        row |= {
            "parameters": int(parameters.replace(",", "")),
            "minutes": plan["seconds"] / 60,
            "words/s": median(speeds) if speeds else None,
            "memory (GB)": plan.get("gigabytes"),
        }
    return row


def read_metric(folder: str, test: str, metric: str) -> dict[str, Any]:
    """The scores that metric.py has written for a model and a test set."""
    path = Path(folder, f"evaluation-{test}", f"metric-{metric}.json")
    scores: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return scores


def last_loss(log: Path) -> float | None:
    """The loss on held-out text after the last validation; None if there was no validation."""
    losses = re.findall(r'"valid_loss": "([^"]+)"', log.read_text(encoding="utf-8"))
    return float(losses[-1]) if losses else None


def link_best(link: Path, folders: Iterable[str]) -> None:
    """Link the run with the lowest finite loss on held-out text, after its last validation."""
    losses = {}
    for folder in folders:
        if not (log := Path(folder, "train.log")).exists():  # an ensemble has none
            continue
        loss = last_loss(log)
        if loss is None:
            fault = "it was never validated; change its options"
        elif not math.isfinite(loss):
            fault = f"its last held-out loss is {loss}; lower learning_rate"
        else:
            losses[folder] = loss
            continue
        print(f"{folder} can't be {link.name}: {fault}")
    if not losses:
        link.unlink(missing_ok=True)
        return
    aside = link.with_name(f"{link.name}.tmp")
    aside.unlink(missing_ok=True)
    aside.symlink_to(os.path.relpath(min(losses, key=losses.__getitem__), link.parent))
    aside.replace(link)


def spread(values: Series, digits: int = 2) -> str:
    """The mean and, of several, their standard deviation."""
    deviation = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{deviation}"


def difference(ours: Series, theirs: Series) -> str:
    """The mean difference over the same seeds, its 95% interval and p (paired t-test)."""
    mean = (ours - theirs).mean()
    if (ours - theirs).nunique() == 1:
        return f"{mean:+.2f}"
    test = stats.ttest_rel(ours, theirs)
    return f"{mean:+.2f} ± {test.confidence_interval().high - mean:.2f} (p = {test.pvalue:.2g})"


def compare(
    ours: DataFrame, theirs: DataFrame, reference: str, pair: Pair, tokenizer: str
) -> list[str]:
    """Two cells: the difference in BLEU over seeds, and the paired bootstrap of each seed."""
    # a model before its training has no seed
    keys = ["test", "seeds"] if theirs["seeds"].any() else ["test"]
    pairs, tests = ours.merge(theirs, on=keys), []
    for test, *folders in zip(pairs["test"], pairs["folder_x"], pairs["folder_y"], strict=True):
        files = [Path(folder, f"evaluation-{test}", "translations.txt") for folder in folders]
        lines, baseline, references = (list(read_lines(file)) for file in (*files, Path(reference)))
        gain, p = paired_bootstrap(baseline, lines, references, pair, tokenizer)
        tests.append(f"{gain:+.2f} (p = {p:.3f})")
    return [difference(pairs["BLEU_x"], pairs["BLEU_y"]), ", ".join(tests)]


def has_sentences(rows: DataFrame, metric: str) -> bool:
    """Whether a metric gives scores to the sentences of a model."""
    pairs = zip(rows["folder"], rows["test"], strict=True)
    return any("sentences" in read_metric(folder, test, metric) for folder, test in pairs)


def compare_sentences(ours: DataFrame, theirs: DataFrame, metric: str) -> str:
    """A cell: the paired bootstrap of each seed, over a metric's scores of sentences."""
    pairs, tests = ours.merge(theirs, on=["test", "seeds"]), []
    for test, *folders in zip(pairs["test"], pairs["folder_x"], pairs["folder_y"], strict=True):
        system, baseline = (read_metric(folder, test, metric) for folder in folders)
        if "sentences" in system and "sentences" in baseline:
            gain, p = bootstrap_means(baseline["sentences"], system["sentences"])
            tests.append(f"{gain:+.4f} (p = {p:.3f})")
    return ", ".join(tests)


def markdown(
    table: DataFrame,
    test: str,
    reference: str,
    baseline: str,
    pair: Pair,
    tokenizer: str = "auto",
    metrics: Sequence[str] = (),
) -> str:
    """The table of one test set; ensembles have rows of their own."""
    rows = table[table["test"] == test]
    columns = ["model", "BLEU", "chrF", *metrics, *OF_TRAINING, "seeds"]
    if baseline:
        seeds = "same seeds" if table[table["scheme"] == baseline]["seeds"].any() else "all seeds"
        columns += [f"BLEU against {baseline}, {seeds}", "each seed (paired bootstrap)"]
        tested = [name for name in metrics if has_sentences(rows, name)]
        columns += [f"{name} against {baseline} (paired bootstrap)" for name in tested]
    lines = [columns, ["---"] * len(columns)]
    is_ensemble = rows["seeds"].str.contains(" ")
    groups = dict(list(rows.groupby(["scheme", "size", is_ensemble], sort=False)))
    for (scheme, size, together), group in groups.items():
        cells = [", ".join(filter(None, [scheme, size, "ensemble" * bool(together)]))]
        cells += [spread(group["BLEU"]), spread(group["chrF"])]
        cells += [spread(group[metric], digits=4) for metric in metrics]
        for column, form in OF_TRAINING.items():
            value = group[column].mean()
            cells.append("" if isna(value) else form.format(value))
        cells.append(", ".join(group["seeds"]))
        # an ensemble, too, is compared with a model before its training
        theirs = groups.get((baseline, size, together), groups.get((baseline, "", False)))
        if scheme != baseline and theirs is not None:
            cells += compare(group, theirs, reference, pair, tokenizer)
            cells += [compare_sentences(group, theirs, name) for name in tested]
        lines.append(cells + [""] * (len(columns) - len(cells)))
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    bleu, chrf = rows[["BLEU signature", "chrF signature"]].iloc[0]
    return f"## {test}\n\n{text}\n\nBLEU: `{bleu}`  \nchrF: `{chrf}`  \n"


def summarise_directions(
    table: DataFrame, directions: Sequence[str], metrics: Sequence[str]
) -> Iterable[str]:
    """A table for each test set and score: the models' scores by direction, and their mean."""
    names = table["test"].str.rpartition(".")  # such as flores.en-de
    table = table.assign(test=names[0], direction=names[2])
    rows = ["scheme", "size", "seeds"]
    for test, part in table.groupby("test", sort=False):
        for score in ("BLEU", "chrF", *metrics):
            grid = part.pivot_table(score, rows, "direction", sort=False)[[*directions]]
            lines = [["model", "seeds", *directions, "mean"]]
            lines.append(["---"] * len(lines[0]))
            for (scheme, size, seeds), scores in grid.iterrows():
                values = [
                    f"{value:.{4 if score in metrics else 2}f}"
                    for value in [*scores, scores.mean()]
                ]
                lines.append([", ".join(filter(None, [scheme, size])), seeds, *values])
            text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
            yield f"## {test}: {score} by direction\n\n{text}\n"


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="CSV file to write")
    parser.add_argument("output", type=Path, help="Markdown file to write")
    parser.add_argument("--models", type=json.loads, required=True, help="folder -> description")
    parser.add_argument(
        "--test", nargs=4, action="append", metavar=("NAME", "REFERENCE", "SOURCE", "TARGET"),
        help="test set with its languages",
    )  # fmt: skip
    parser.add_argument("--metrics", nargs="+", default=[], help="other columns of scores")
    parser.add_argument("--baseline", default="", help="scheme to test the others against")
    parser.add_argument(
        "--directions",
        nargs="*",
        default=[],
        help="directions, such as en-de de-en, with which names of test sets end",
    )
    parser.add_argument("--tokenizer", default="auto", help="sacreBLEU's tokenizer for BLEU")
    args = parser.parse_args()
    rows = [
        read_row(test, folder, description, args.metrics)
        for folder, description in args.models.items()
        for test, *_ in args.test
    ]
    table = DataFrame(rows, columns=[*COLUMNS.split(","), *args.metrics]).astype(
        {"parameters": "Int64"}
    )
    with atomic_file(args.results) as file:
        table.round({"minutes": 1, "words/s": 0, "memory (GB)": 2}).to_csv(
            file, index=False, lineterminator="\n"
        )
    texts = [*summarise_directions(table, args.directions, args.metrics)] if args.directions else []
    texts += [
        markdown(table, name, path, args.baseline, (source, target), args.tokenizer, args.metrics)
        for name, path, source, target in args.test
    ]
    args.output.write_text("\n".join(texts), encoding="utf-8")
    link_best(args.output.with_name("best"), args.models)
    print("\n".join(texts))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
