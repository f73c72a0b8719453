"""Scores real system outputs for newstest2017, and shows the published figures beside.

They were made with other programs (mteval-v13a.pl, mteval-v14.pl, tercom, chrF++.py) or an earlier
sacreBLEU, so this shows that the workflow's scores can be compared with figures from
elsewhere. Status 1 if one differs.

    python examples/wmt18/score_outputs.py FOLDER_OF_DATA

FOLDER_OF_DATA holds newstest2017/ and newstest2017_outputs/.
"""

import csv
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


class Figure(NamedTuple):
    """A published kind of figure: sacreBLEU's metric for it, its unit and its digits."""

    name: str
    metric: Callable[[], Any]
    unit: float
    digits: int


#: column of a published.tsv -> what it is
FIGURES = {
    "published_bleu": Figure("BLEU 13a", BLEU, 1, 1),
    "bleu_mteval_v13a": Figure("BLEU 13a", BLEU, 1, 2),
    "bleu_mteval_v14_intl": Figure("BLEU intl", lambda: BLEU(tokenize="intl"), 1, 2),
    "ter_tercom": Figure("TER", TER, 100, 3),
    "chrf": Figure("chrF", lambda: CHRF(eps_smoothing=True), 1, 4),
    "chrf++": Figure("chrF++", lambda: CHRF(word_order=2, eps_smoothing=True), 1, 4),
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

    def __str__(self) -> str:
        mark = "" if self.same else "  <-- differs"
        name = self.system.removeprefix("newstest2017.").removesuffix(f".{self.pair}")
        return (
            f"{self.pair}  {name:32} {self.figure:10}{self.published:>10}{self.ours:>10}  "
            f"{self.signature}{mark}"
        )


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
            output = list(read_lines(table.parent / entry["file"], keep_mark=True))
            source, target = (FILES[language] for language in pair.split("-"))
            reference = data / "newstest2017" / f"{source}-{target}" / f"newstest2017.{target}.gz"
            for column, figure in FIGURES.items():
                if published := entry.get(column):
                    metric = figure.metric()
                    score = metric.corpus_score(output, [list(read_lines(reference))]).score
                    ours = f"{score / figure.unit:.{figure.digits}f}"
                    signature = str(metric.get_signature())
                    yield Row(pair, entry["system"], figure.name, published, ours, signature)


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path, metavar="FOLDER_OF_DATA")
    parser.add_argument("--systems", type=int, help="of each table (all)")
    args = parser.parse_args()
    found = list(tqdm(rows(args.data, args.systems), unit=" figures", disable=None))
    print(f"pair   {'system':32} {'figure':10}{'published':>10}{'here':>10}  signature")
    print(*found, sep="\n")
    same = sum(row.same for row in found)
    print(f"{same} of {len(found)} figures are the published ones to the last digit")
    return 0 if same == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
