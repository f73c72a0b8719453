"""Write results/papers.csv: our figure beside the papers' where one exists, and what a row costs.

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

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import atomic_file

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
COLUMNS = ("target", "table", "row", "note", "paper", "ours", "H100 hours")


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


def rows(papers: dict[str, Any]) -> Iterator[dict[str, str]]:
    """A row of the CSV for every row of the papers' tables."""
    tables = yaml.safe_load((HERE / "tables.yaml").read_text(encoding="utf-8"))["tables"]
    with open(ROOT / "results" / "speed.csv", encoding="utf-8") as file:
        speeds = {row["scheme"]: float(row["tokens per second"]) for row in csv.DictReader(file)}
    for target, table in tables.items():
        columns = table["columns"]
        for row in table["rows"]:
            printed = paper_row(papers, table["paper"], row["paper"])
            cost = ""
            preset = row.get("preset", table.get("preset"))
            if preset:
                path = HERE.parent / "roberta" / "configs" / f"{preset}.yaml"
                config = yaml.safe_load(path.read_text(encoding="utf-8"))
                cost = f"{hours(row, config, speeds):.0f}"
            yield {
                "target": target,
                "table": table["title"],
                "row": row.get("model") or " ".join(map(str, row["paper"].values())),
                "note": row.get("note", ""),
                "paper": format_numbers({name: printed.get(name) for name in columns}),
                "ours": format_numbers(row.get("ours", "")),
                "H100 hours": cost,
            }


def format_numbers(value: Any) -> str:
    """A text as it is, a single number, or numbers by name: "en-de 39.0, de-en 38.42"."""
    if not isinstance(value, dict):
        return str(value)
    numbers = {name: number for name, number in value.items() if number}
    if len(numbers) == 1:
        return str(next(iter(numbers.values())))
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--papers", type=Path, required=True, help="paper_tables.json")
    args = parser.parse_args()
    try:
        papers = json.loads(args.papers.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--papers {args.papers} can't be read ({error}): name another") from error
    with atomic_file(args.output) as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows(papers))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
