"""Scores real system outputs for newstest2017, and shows the published figures beside.

They were made with other programs (mteval-v13a.pl, mteval-v14.pl, tercom, chrF++.py) or an earlier
sacreBLEU, so this shows that the workflow's scores can be compared with figures from
elsewhere. Status 1 if one differs.

    python tools/score_outputs.py FOLDER_OF_DATA

FOLDER_OF_DATA holds newstest2017/ and newstest2017_outputs/.
"""

import csv
import gzip
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU, CHRF, TER
from tqdm import tqdm

from diet_fairseq.errors import UserError
from diet_fairseq.text.lines import read_lines

#: column of a published.tsv -> name, sacreBLEU's metric, its unit, digits
FIGURES: dict[str, tuple[str, Callable[[], Any], float, int]] = {
    "published_bleu": ("BLEU 13a", BLEU, 1, 1),
    "bleu_mteval_v13a": ("BLEU 13a", BLEU, 1, 2),
    "bleu_mteval_v14_intl": ("BLEU intl", lambda: BLEU(tokenize="intl"), 1, 2),
    "ter_tercom": ("TER", TER, 100, 3),
    "chrf": ("chrF", lambda: CHRF(eps_smoothing=True), 1, 4),
    "chrf++": ("chrF++", lambda: CHRF(word_order=2, eps_smoothing=True), 1, 4),
}
FILES = {"en": "eng", "de": "deu", "cs": "ces"}


class Row(NamedTuple):
    pair: str
    system: str
    figure: str
    published: str
    ours: str
    signature: str

    @property
    def same(self) -> bool:
        return float(self.published) == float(self.ours)


def rows(data: Path, systems: int | None = None) -> Iterator[Row]:
    """Every published figure under the folder, or of so many systems a table, scored again."""
    tables = sorted((data / "newstest2017_outputs").glob("*/published.tsv"))
    if not tables:
        raise UserError(f"{data} has no newstest2017_outputs/*/published.tsv")
    for table in tables:
        lines = (line for line in read_lines(table) if line)
        for entry in islice(csv.DictReader(lines, delimiter="\t"), systems):
            pair = entry.get("pair") or entry["system"].rpartition(".")[2]
            # A byte-order mark in one of the outputs went into its figure.
            path = table.parent / entry["file"]
            with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
                output = [line.decode().rstrip("\r\n") for line in file]
            source, target = (FILES[language] for language in pair.split("-"))
            reference = data / "newstest2017" / f"{source}-{target}" / f"newstest2017.{target}.gz"
            for column, (name, make_metric, unit, digits) in FIGURES.items():
                if published := entry.get(column):
                    metric = make_metric()
                    score = metric.corpus_score(output, [list(read_lines(reference))]).score
                    ours, signature = f"{score / unit:.{digits}f}", str(metric.get_signature())
                    yield Row(pair, entry["system"], name, published, ours, signature)


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path, metavar="FOLDER_OF_DATA")
    args = parser.parse_args()
    table = list(tqdm(rows(args.data), unit=" figures", disable=None))
    for row in table:
        print(*row, "" if row.same else "<-- differs", sep="\t")
    same = sum(row.same for row in table)
    print(f"{same} of {len(table)} figures are the published ones to the last digit")
    return 0 if same == len(table) else 1


if __name__ == "__main__":
    sys.exit(main())
