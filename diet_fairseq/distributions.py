"""Installed distributions of fairseq, and a warning about untested ones.

Several distributions on PyPI have a package ``fairseq``. pip silently
installs one over another, and removing one then deletes files of the other.
"""

import logging
from importlib.metadata import Distribution
from pathlib import Path

logger = logging.getLogger(__name__)
#: names and versions of the distributions that the tests run with
TESTED = {"fairseq-fixed": "0.12.3.1", "ve-fairseq": "0.12.3"}
#: a file that every distribution of fairseq has
FILE = "fairseq/version.py"


def find_distributions(folder: Path) -> list[tuple[str, str]]:
    """Names and versions of the distributions that have installed `FILE` in a folder."""
    # reading the file lists of all distributions would take a second
    paths = sorted(folder.glob("*fairseq*.dist-info"))
    distributions = [Distribution.at(path) for path in paths]
    return [
        (distribution.metadata["Name"], distribution.version)
        for distribution in distributions
        if any(str(file) == FILE for file in distribution.files or ())
    ]


def check_distributions(folder: Path, version: str) -> None:
    """Log a warning if several distributions are installed, or an untested distribution.

    Args:
        folder: the folder that has the package ``fairseq``
        version: ``fairseq.__version__``, which names a checkout without metadata
    """
    installed = find_distributions(folder)
    names = " and ".join(map(" ".join, installed)) or f"{version} in {folder}"
    if len(installed) > 1:
        logger.warning(
            "%s have both installed %s, and one has overwritten the other's files: `pip uninstall` "
            "all of them, then install one", names, folder / FILE,
        )  # fmt: skip
    elif not TESTED.items() & set(installed):
        tested = " and ".join(map(" ".join, TESTED.items()))
        logger.warning("fairseq is %s, but the tests of diet_fairseq run with %s", names, tested)
