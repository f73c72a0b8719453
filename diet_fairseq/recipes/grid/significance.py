"""Whether two translations of one test set differ by more than chance: sacreBLEU's own test."""

import logging
from collections.abc import Sequence
from pathlib import Path

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest, Result

from ..common.text import read_lines
from ..translation.prepare import prepared_test
from .job import Job
from .spec import Cell, Grid

SAMPLES = 1000


def bootstrap(grid: Grid, chosen: list[Cell], baseline: str) -> dict[str, str]:
    """Row -> the difference in BLEU from the baseline's run of each seed, and its p.

    Paired bootstrap over the sentences of the test set (Koehn 2004): it says nothing of other
    seeds. Rows without translations, or without a seed in common with the baseline, are left out.
    """
    _, target = grid.pair.split("-")
    outputs: dict[str, dict[int, Path]] = {}
    for cell in chosen:
        path = Job(grid, cell).folder / "evaluation-test" / "translations.txt"
        if path.exists():
            outputs.setdefault(cell.row, {})[cell.seed] = path
    theirs = outputs.pop(baseline, {})
    if not theirs:
        return {}
    references = list(read_lines(prepared_test(grid.folder, target)))
    found = {}
    for row, seeds in outputs.items():
        both = [seed for seed in seeds if seed in theirs]
        tests = [_test(seeds[seed], theirs[seed], references, target) for seed in both]
        if tests:
            found[row] = ", ".join(tests)
    return found


def _test(ours: Path, theirs: Path, references: list[str], language: str) -> str:
    systems: list[tuple[str, Sequence[str]]] = [
        (str(path), list(read_lines(path))) for path in (theirs, ours)
    ]
    if systems[0][1] == systems[1][1]:
        return "+0.00 (p = 1.000)"  # sacreBLEU counts larger differences, and finds none
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    metrics = {"BLEU": BLEU(trg_lang=language)}
    _, scores = PairedTest(systems, metrics, [references], "bs", n_samples=SAMPLES)()
    baseline, one = (result for result in scores["BLEU"] if isinstance(result, Result))
    return f"{one.score - baseline.score:+.2f} (p = {one.p_value:.3f})"
