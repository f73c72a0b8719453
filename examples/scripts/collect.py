"""Collect the scores of all runs in one CSV file, with parameters and minutes of training."""

import csv
import json
import re
from argparse import ArgumentParser
from pathlib import Path

from pydantic import BaseModel

from diet_fairseq.atomic import written
from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.input_files import read_object

COLUMNS = [
    *("folder", "scheme", "size", "seeds", "test", "BLEU", "chrF"),
    *("parameters", "minutes", "BLEU signature", "chrF signature"),
]


class Scores(BaseModel, extra="allow"):
    """The part of ``scores.json`` that must be there."""

    BLEU: float


def read_training(log: Path) -> dict[str, str]:
    """Parameters and minutes of the last part of a run, from fairseq-train's log."""
    if not log.exists():  # an ensemble
        return {}
    text = log.read_text(encoding="utf-8")
    parameters = re.findall(r"num\. shared model params: ([\d,]+)", text)
    wall = re.findall(r'"train_wall": "([\d.]+)"', text)
    return {
        "parameters": parameters[-1].replace(",", ""),
        "minutes": f"{float(wall[-1]) / 60:.1f}" if wall else "",
    }


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=json.loads, required=True, help="folder -> what it is")
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    with written(args.output) as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        table.writeheader()
        for folder, about in args.models.items():
            for test in args.tests:
                place = Path(folder, f"evaluation-{test}", "scores.json")
                scores = read_object(place, Scores, advice="remove it, and score again")
                training = read_training(Path(folder, "train.log"))
                where = {"folder": folder, "test": test}
                table.writerow({**scores.model_dump(), **training, **about, **where})


if __name__ == "__main__":
    with exit_with_one_line():
        main()
