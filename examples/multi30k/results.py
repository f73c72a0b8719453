"""Trains and evaluates every position scheme on Multi30k with the same budget.

A finished cell is one JSON file in the folder of results; a cell that was cut goes on from
fairseq's last checkpoint. ``--table`` prints what is finished as Markdown.
"""

import json
import platform
import re
import shlex
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

HERE = Path(__file__).parent
#: row of the table -> what `run.py train` is given
ROWS = {
    "none": ["none"],
    "stock sinusoidal": ["stock"],
    "sinusoidal": ["sinusoidal"],
    "learned": ["learned"],
    "shaw": ["shaw"],
    "t5": ["t5"],
    "tupe_a": ["tupe_a"],
    "tupe_r": ["tupe_r"],
    "diet_rel": ["diet_rel"],
    "diet_abs": ["diet_abs"],
    "diet_abs, rank 128": ["diet_abs", "--position-rank", "128"],
}
DIRECTIONS = ("en-de", "de-en", "en-cs", "cs-en")


def arguments() -> tuple[Namespace, list[str]]:
    parser = ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="What is not known here is passed to fairseq-train.",
        allow_abbrev=False,
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--directions", nargs="+", choices=DIRECTIONS, default=["en-de"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--size", default="tiny", help="(%(default)s)")
    parser.add_argument("--updates", type=int, default=1000, help="(%(default)s)")
    parser.add_argument("--gpus", type=int, default=0, help="per cell; 0: the CPU (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side (%(default)s)")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("multi30k"),
        help="folder with a prepared folder for each pair (%(default)s)",
    )
    parser.add_argument("--results", type=Path, help="where the cells go (DATA/results)")
    parser.add_argument("--table", action="store_true", help="print what is finished, and end")
    return parser.parse_known_args()


@dataclass(frozen=True)
class Cell:
    """One run: a row, a direction, a seed, within the budget that all have in common."""

    row: str
    direction: str
    seed: int
    budget: Namespace
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        row = re.sub(r"\W+", "-", self.row)
        return f"{row}_{self.budget.size}_{self.budget.updates}_{self.direction}_seed{self.seed}"

    @property
    def folder(self) -> Path:
        """Of the prepared pair; English is always named first."""
        return self.budget.data / "-".join(
            sorted(self.direction.split("-"), key=lambda s: s != "en")
        )

    @property
    def result(self) -> Path:
        return (self.budget.results or self.budget.data / "results") / f"{self.name}.json"

    def command(self, name: str) -> list[str]:
        scheme, *options = ROWS[self.row]
        budget = self.budget
        command = [HERE / "run.py", name, scheme, *self.direction.split("-"), "--run", self.name]
        command += ["--folder", self.folder, "--size", budget.size, "--gpus", budget.gpus]
        if name == "train":
            command += ["--updates", budget.updates, "--seed", self.seed, *options, *self.more]
        return [str(part) for part in command]

    def run(self) -> str:
        """Train and evaluate, unless that is done; returns what came out in a line."""
        if self.result.exists():
            return "done before"
        run = self.folder / "runs" / self.name
        run.mkdir(parents=True, exist_ok=True)
        self.result.parent.mkdir(parents=True, exist_ok=True)
        for name in ("train", "evaluate"):
            log = run / f"{name}.out"
            with open(log, "ab") as file:
                command = [sys.executable, *self.command(name)]
                status = subprocess.call(command, stdout=file, stderr=subprocess.STDOUT)
            if status:
                return f"FAILED: {name} ended with status {status}, see {log}"
        scores = run / "evaluation-test" / "scores.json"
        found = {
            "row": self.row,
            "direction": self.direction,
            "seed": self.seed,
            "size": self.budget.size,
            "updates": self.budget.updates,
            **json.loads(scores.read_text(encoding="utf-8")),
            **read_log(run / "train.log"),
            "jobs": self.budget.jobs,
            "gpus": self.budget.gpus,
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "command": shlex.join(["python", *self.command("train")]),
        }
        partial = self.result.with_suffix(".partial")
        partial.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        partial.rename(self.result)
        return f"BLEU {found['BLEU']:.2f}, chrF {found['chrF']:.2f}"


def read_log(log: Path) -> dict[str, Any]:
    """Parameters and seconds as fairseq counts them, earlier parts of a resumed run included."""
    text = log.read_text(encoding="utf-8")
    [parameters, *_] = re.findall(r"num\. shared model params: ([\d,]+)", text)
    *_, updates = re.findall(r"\| num_updates (\d+)", text)
    *_, seconds = re.findall(r"\| wall (\d+)", text)
    return {
        "parameters": int(parameters.replace(",", "")),
        "updates done": int(updates),
        "seconds": int(seconds),
    }


def table(cells: list[Cell]) -> str:
    """Markdown: rows against means over seeds, the spread behind them."""
    lines = []
    for direction in dict.fromkeys(cell.direction for cell in cells):
        lines += [
            f"| {direction} | BLEU | chrF | parameters | minutes | seeds |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        signatures: dict[str, str] = {}
        for row in ROWS:
            found = [
                json.loads(cell.result.read_text(encoding="utf-8"))
                for cell in cells
                if (cell.row, cell.direction) == (row, direction) and cell.result.exists()
            ]
            if not found:
                continue
            bleu, chrf = (spread([one[name] for one in found]) for name in ("BLEU", "chrF"))
            minutes = mean(one["seconds"] for one in found) / 60
            seeds = ", ".join(str(one["seed"]) for one in found)
            parameters = f"{found[0]['parameters']:,}"
            lines.append(f"| {row} | {bleu} | {chrf} | {parameters} | {minutes:.1f} | {seeds} |")
            signatures |= {name: found[0][f"{name} signature"] for name in ("BLEU", "chrF")}
        lines += ["", *(f"{name}: `{text}`  " for name, text in signatures.items()), ""]
    return "\n".join(lines)


def spread(scores: list[float], digits: int = 2) -> str:
    deviation = f" ± {stdev(scores):.{digits}f}" if len(scores) > 1 else ""
    return f"{mean(scores):.{digits}f}{deviation}"


def main() -> int:
    args, more = arguments()
    cells = [
        Cell(row, direction, seed, args, tuple(more))
        for seed in args.seeds
        for direction in args.directions
        for row in args.rows
    ]
    if args.table:
        print(table(cells))
        return 0
    started = time.monotonic()
    failed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for cell, outcome in zip(cells, pool.map(Cell.run, cells), strict=True):
            print(f"[{time.monotonic() - started:6.0f} s] {cell.name}: {outcome}", flush=True)
            failed += outcome.startswith("FAILED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
