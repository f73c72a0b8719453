"""sacreBLEU's own test sets, which it downloads and checks."""

from pathlib import Path

from ...errors import UserError
from ..common.text import write_lines


def lines_of(test_set: str, pair: str) -> tuple[list[str], list[str]]:
    """Sources and references; ``pair`` is like ``en-de``."""
    from sacrebleu.dataset import DATASETS

    if test_set not in DATASETS or pair not in DATASETS[test_set].langpairs:
        raise UserError(f"sacreBLEU has no test set {test_set} for {pair}: see sacrebleu --list")
    data = DATASETS[test_set]
    try:
        sources = [line.strip() for line in data.source(pair)]
        references = [line[0].strip() for line in data.references(pair)]
    except (Exception, SystemExit) as error:  # it reports a failed download in either way
        raise UserError(
            f"sacreBLEU could not fetch {test_set} {pair} ({error}): run this again with a "
            "network, or name files"
        ) from error
    return sources, references


def write(test_set: str, folder: Path, name: str, source: str, target: str) -> None:
    """The set as a pair of files."""
    for language, lines in zip(
        (source, target), lines_of(test_set, f"{source}-{target}"), strict=True
    ):
        write_lines(folder / f"{name}.{language}", lines)
