"""Write docs/papers.md: our figure beside the papers' where one exists, and what a row costs.

Costs are computed, not measured: the tokens of pretraining divided by the tokens per second of a
BERT-Base on one H100 (results/speed.csv), in proportion to the parameters of a model's layers.
"""

import csv
import json
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from diet_fairseq.atomic import written
from diet_fairseq.errors import UserError, exit_with_one_line

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: schemes whose speed was not measured -> the one whose speed stands for theirs
LIKE = {
    "learned": "none",
    "linformer": "none",
    "diet_abs_lin": "diet_abs",
    "tupe_free": "tupe_r",
    "bert_ad": "tupe_a",
}
#: parameters of the layers, in millions: 12 d^2 a layer; an ELECTRA has a generator a third as wide
LAYERS = {"base": 85, "large": 302, "electra": 85 + 85 / 9}
INTRODUCTION = """# The papers' tables

Made by `snakemake -s examples/papers/Snakefile page`; do not edit. A target for every table runs
its rows (`snakemake -s examples/papers/Snakefile -n diet_table_2` shows what would run). **No row
has been run at full size.** *Ours* is what was measured with small models, and is no comparison
with the paper's figure. *H100 hours* are computed, for pretraining alone, from measured tokens per
second ([results/speed.csv](../results/speed.csv)).
"""


def paper_row(papers: dict[str, Any], key: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The printed row that the fields tell; its numbers by column."""
    rows = papers[key]["rows"] if key else {}
    if isinstance(rows, dict):  # TUPE's averages, a number for each model
        return {"value": rows.get(fields.get("model"))}
    for row in rows:
        printed = row | {"sharing": row.get("sharing") or "none"}
        if fields and all(printed.get(name) == value for name, value in fields.items()):
            return row.get("scores", row)
    return {}


def hours(row: dict[str, Any], preset: dict[str, Any], speeds: dict[str, float]) -> float:
    """Hours of pretraining on one H100."""
    model, updates = preset["models"][row["model"]], preset["updates"]
    if isinstance(model, dict):  # an earlier checkpoint of a run
        model, updates = preset["models"][model["checkpoint_of"]], model["updates"]
    family, _, scheme = model.split()[0].partition("_")
    tokens = updates * preset["batch"] * preset["length"]
    size = LAYERS["electra"] if family == "electra" else LAYERS[preset["size"]]
    return tokens / speeds[LIKE.get(scheme, scheme)] * size / LAYERS["base"] / 3600


def lines(papers: dict[str, Any]) -> Iterator[str]:
    tables = yaml.safe_load((HERE / "tables.yaml").read_text(encoding="utf-8"))["tables"]
    with open(ROOT / "results" / "speed.csv", encoding="utf-8") as file:
        speeds = {row["scheme"]: float(row["tokens per second"]) for row in csv.DictReader(file)}
    yield INTRODUCTION
    for target, table in tables.items():
        yield f"## {table['title']}\n\nTarget `{target}`.\n"
        columns = table["columns"]
        yield f"| row | {''.join(f'paper: {name} | ' for name in columns)}ours | H100 hours |"
        yield "| --- " * (len(columns) + 3) + "|"
        for row in table["rows"]:
            printed = paper_row(papers, table["paper"], row["paper"])
            numbers = [str(printed.get(name) or "") for name in columns]
            ours = row.get("ours", "")
            if isinstance(ours, dict):
                ours = ", ".join(f"{name} {value}" for name, value in ours.items())
            cost = ""
            preset = row.get("preset", table.get("preset"))
            if preset:
                path = HERE.parent / "roberta" / "configs" / f"{preset}.yaml"
                config = yaml.safe_load(path.read_text(encoding="utf-8"))
                cost = f"{hours(row, config, speeds):,.0f}"
            name = row.get("model") or " ".join(map(str, row["paper"].values()))
            note = f" ({row['note']})" if "note" in row else ""
            yield f"| {' | '.join([name + note, *numbers, ours, cost])} |"
        yield ""


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--papers", type=Path, required=True, help="paper_tables.json")
    args = parser.parse_args()
    try:
        papers = json.loads(args.papers.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--papers {args.papers} can't be read ({error}): name another") from error
    text = "\n".join(lines(papers))
    with written(args.output) as file:
        file.write(text.rstrip("\n") + "\n")


if __name__ == "__main__":
    with exit_with_one_line():
        main()
