"""The documentation's figures of measurements, drawn from the CSV files of results/.

`make tables` runs it. Every figure has the lines of one file.
"""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, read_csv

ROOT = Path(__file__).parents[1]


def read(name: str) -> DataFrame:
    """The cells of results/NAME.csv, as numbers where they are numbers."""
    return read_csv(ROOT / f"results/{name}.csv", thousands=",")


def of_several_seeds(table: DataFrame) -> DataFrame:
    """The rows of schemes that were trained with more than one seed."""
    seeds = table.groupby("scheme")["seed"].nunique()
    return table[table["scheme"].map(seeds) > 1]


def draw_lines(axes: Axes, table: DataFrame, xlabel: str, ylabel: str, title: str = "") -> None:
    """Draw a line for each column, over the index."""
    for name, column in table.items():
        axes.plot(table.index, column, marker="o", markersize=3, label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.grid(alpha=0.3)


def tatoeba() -> Figure:
    """Held-out loss of translation against updates, the mean over seeds."""
    loss = "without label smoothing, nats"
    curves = of_several_seeds(read("translation/tatoeba-curves"))
    table = curves.pivot_table(loss, "updates", "scheme")
    figure = Figure(figsize=(8, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    order = table.iloc[-1].sort_values(ascending=False).index
    draw_lines(left, table[order], "updates", "held-out loss, nats")
    draw_lines(right, table[order].loc[1000:], "updates", "", "from 1,000 updates on")
    left.legend()
    return figure


def eltec() -> Figure:
    """Held-out loss of masked words in novels: short runs, the mean over seeds, and long ones."""
    runs = ["updates of the run", "updates"]
    losses = of_several_seeds(read("pretraining/eltec"))
    table = losses.pivot_table("held-out loss, nats", runs, "scheme")
    table = table[table.loc[2000, 2000].sort_values(ascending=False).index]
    figure = Figure(figsize=(8, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    draw_lines(left, table.loc[2000], "updates", "held-out loss, nats", "runs of 2,000 updates")
    draw_lines(right, table.loc[10000], "updates", "", "runs of 10,000 updates")
    left.legend()
    return figure


def lengths() -> Figure:
    """Loss of masked words against the length of the window."""
    table = read("lengths/encoders-4000-updates")
    table.index = table.pop("scheme") + ", " + table.pop("checkpoint")
    table = table.replace(r" \(.*", "", regex=True).astype(float).T
    table.index = [int(name.removesuffix(" tokens")) for name in table.index]
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    draw_lines(axes, table, "tokens of the window", "held-out loss, nats")
    axes.set_xscale("log", base=2)
    axes.set_xticks(table.index, table.index)
    axes.axvline(128, linestyle="dashed", color="grey")
    figure.legend(loc="outside right center")
    return figure


def linear() -> Figure:
    """Time and memory of a layer for each token against the length of the input."""
    table = read("performance/long-inputs").query("part == 'layer'").set_index("n")
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = [("forward", "µs"), ("training step", "µs"), ("training step", "KiB")]
    for axes, (step, unit) in zip(figure.subplots(1, 3), panels, strict=True):
        columns = {name: name.split(",")[0] for name in table if name.endswith(unit)}
        rows = table[table["pass"] == step][[*columns]].rename(columns=columns)
        draw_lines(axes, rows, "n", f"{unit} per token", step)
        axes.set_xscale("log")
        axes.set_xticks([512, 4096, 16384], ["512", "4,096", "16,384"])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return figure


FIGURES = (tatoeba, eltec, lengths, linear)


def main() -> None:
    for draw in FIGURES:
        draw().savefig(ROOT / f"docs/figures/{draw.__name__}.png", dpi=110)


if __name__ == "__main__":
    main()
