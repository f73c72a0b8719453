"""Show scores by the length of the test set: a table and a figure, means over seeds."""

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from pandas import DataFrame, read_csv

from diet_fairseq.errors import exit_with_one_line


def markdown(table: DataFrame, metrics: Sequence[str]) -> str:
    """A row for each model: its scores on each test set, ± the standard deviation over seeds."""
    groups = table.groupby(["model", "test"], sort=False)[[*metrics]]
    means, deviations = groups.mean(), groups.std()
    lengths = sorted(table["test"].unique())
    columns = [(metric, length) for metric in metrics for length in lengths]
    lines = [["model", *(f"{metric}, {length}" for metric, length in columns)]]
    lines.append(["---"] * len(lines[0]))
    for model in dict.fromkeys(table["model"]):
        cells = []
        for metric, length in columns:
            deviation = deviations.loc[(model, length), metric]
            spread = "" if deviation != deviation else f" ± {deviation:.3f}"
            cells.append(f"{means.loc[(model, length), metric]:.3f}{spread}")
        lines.append([model, *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def draw(table: DataFrame, metrics: Sequence[str], path: Path) -> None:
    """Draw the means of each metric by length, with a line for each model."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(
        1, len(metrics), figsize=(6 * len(metrics), 5), layout="constrained", squeeze=False
    )
    for axes, metric in zip(grid[0], metrics, strict=True):
        for model, rows in table.groupby("model", sort=False):
            by_length = rows.groupby("test")[metric]
            (line,) = axes.plot(by_length.mean(), marker="o", label=model)
            axes.fill_between(
                by_length.mean().index, by_length.min(), by_length.max(),
                color=line.get_color(), alpha=0.2, linewidth=0,
            )  # fmt: skip
        axes.set(xlabel="length of the test set", ylabel=metric)
        axes.set_xticks(sorted(table["test"].unique()))
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="CSV of the workflow's table")
    parser.add_argument("table", type=Path, help="Markdown to write")
    parser.add_argument("figure", type=Path, help="PNG to write")
    parser.add_argument("--metrics", nargs="+", required=True)
    args = parser.parse_args()
    table = read_csv(args.results, dtype={"seeds": str})
    several_sizes = table["size"].nunique() > 1
    table["model"] = table["scheme"] + (", " + table["size"] if several_sizes else "")
    text = markdown(table, args.metrics)
    args.table.write_text(text, encoding="utf-8")
    draw(table, args.metrics, args.figure)
    print(text, end="")


if __name__ == "__main__":
    with exit_with_one_line():
        main()
