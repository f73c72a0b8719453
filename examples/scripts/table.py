"""Collect the scores of all models as CSV, and as a table: means, deviations and paired tests."""

import csv
import json
import re
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from scipy import stats

from diet_fairseq.atomic import atomic_file
from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_lines
from diet_fairseq.text.scores import paired_bootstrap

Row = dict[str, str]
COLUMNS = [
    *("folder", "scheme", "size", "seeds", "test", "BLEU", "chrF"),
    *("parameters", "minutes", "BLEU signature", "chrF signature"),
]


def read_training(log: Path) -> Row:
    """Parameters and minutes of the last part of a run, from fairseq-train's log."""
    if not log.exists():  # an ensemble
        return {"parameters": "", "minutes": ""}
    text = log.read_text(encoding="utf-8")
    parameters = re.findall(r"num\. shared model params: ([\d,]+)", text)
    wall = re.findall(r'"train_wall": "([\d.]+)"', text)
    return {
        "parameters": parameters[-1].replace(",", ""),
        "minutes": f"{float(wall[-1]) / 60:.1f}" if wall else "",
    }


def read_row(folder: str, description: Row, test: str) -> Row:
    """The scores of one model on one test set."""
    scores = json.loads(
        Path(folder, f"evaluation-{test}", "scores.json").read_text(encoding="utf-8")
    )
    row = scores | read_training(Path(folder, "train.log")) | description
    return {name: str({**row, "folder": folder, "test": test}[name]) for name in COLUMNS}


def spread(values: Sequence[float]) -> str:
    """The mean and, of several, their standard deviation."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def difference(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The mean difference over the same seeds, its 95% interval and p (paired t-test)."""
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    if len(set(differences)) < 2:
        return f"{mean(differences):+.2f}"
    half = stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
    p = stats.ttest_rel(ours, theirs).pvalue
    return f"{mean(differences):+.2f} ± {half:.2f} (p = {p:.2g})"


def translations(row: Row) -> list[str]:
    return list(read_lines(Path(row["folder"], f"evaluation-{row['test']}", "translations.txt")))


def against(ours: list[Row], theirs: list[Row], reference: Path) -> list[str]:
    """Two cells: the difference in BLEU over seeds, and the paired bootstrap of each seed."""
    other = {row["seeds"]: row for row in theirs}
    pairs = [(row, other[row["seeds"]]) for row in ours if row["seeds"] in other]
    if not pairs or ours == theirs:
        return ["", ""]
    values = zip(*((float(one["BLEU"]), float(two["BLEU"])) for one, two in pairs), strict=True)
    references, tests = list(read_lines(reference)), []
    for one, two in pairs:
        gain, p = paired_bootstrap(translations(two), {"": translations(one)}, references)[""]
        tests.append(f"{gain:+.2f} (p = {p:.3f})")
    return [difference(*values), ", ".join(tests)]


def markdown(rows: list[Row], reference: Path, baseline: str) -> str:
    """The table of one test set; ensembles have rows of their own."""
    groups: dict[tuple[str, str, bool], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["scheme"], row["size"], " " in row["seeds"]), []).append(row)
    head = ["model", "BLEU", "chrF"]
    if baseline:
        head += [f"BLEU against {baseline}, same seeds", "each seed (paired bootstrap)"]
    head += ["parameters", "minutes", "seeds"]
    lines = [f"## {rows[0]['test']}", "", f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for (scheme, size, together), group in groups.items():
        cells = [f"{scheme}, {size}" + ", ensemble" * together]
        cells += [spread([float(row[metric]) for row in group]) for metric in ("BLEU", "chrF")]
        if baseline:
            cells += against(group, groups.get((baseline, size, together), []), reference)
        cells.append(f"{int(group[0]['parameters']):,}" if group[0]["parameters"] else "")
        minutes = [float(row["minutes"]) for row in group if row["minutes"]]
        cells.append(f"{mean(minutes):.1f}" if minutes else "")
        cells.append(", ".join(row["seeds"] for row in group))
        lines.append(f"| {' | '.join(cells)} |")
    signatures = [f"{name}: `{rows[0][f'{name} signature']}`  " for name in ("BLEU", "chrF")]
    return "\n".join([*lines, "", *signatures, ""])


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="CSV to write")
    parser.add_argument("output", type=Path, help="Markdown to write")
    parser.add_argument("--models", type=json.loads, required=True, help="folder -> description")
    parser.add_argument("--test", nargs=2, action="append", metavar=("NAME", "REFERENCE"))
    parser.add_argument("--baseline", default="", help="scheme to test the others against")
    args = parser.parse_args()
    models = args.models.items()
    rows = [read_row(folder, about, test) for folder, about in models for test, _ in args.test]
    with atomic_file(args.results) as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    tables = [
        markdown([row for row in rows if row["test"] == test], Path(reference), args.baseline)
        for test, reference in args.test
    ]
    with atomic_file(args.output) as output:
        output.write("\n".join(tables))
    print("\n".join(tables))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
