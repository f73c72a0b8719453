"""Texts and tasks for a small XTREME: ``xtreme_data.py DATA FOLDER`` (XTREME.md).

DATA has the folders flores-dev, newstest2008-2016, newstest2017, ud and xtreme. FOLDER gets

- texts/LANGUAGE, to pretrain on
- tasks, XTREME's files and halves of XNLI's dev set: line n is the same item in every language, and
  three lines in a row share a premise, so the first half is for training and the second for testing
"""

import gzip
import sys
from collections.abc import Iterable
from pathlib import Path
from shutil import copyfile

#: the folders' names of languages -> ours
NAMES = {"eng": "en", "deu": "de", "ces": "cs", "de_gsd": "de", "cs_cac": "cs"}
#: one of so many training items is held out, to select by
HELD_OUT = 10


def texts(data: Path, folder: Path) -> None:
    """Copy every file of text into the folder of its language."""
    files = [*data.glob("flores-dev/flores-dev.*"), *data.glob("newstest20*[0-9]/*/*.gz")]
    found = {path: path.name.removesuffix(".gz").rpartition(".")[2] for path in files}
    found |= {path: path.name.partition("-")[0] for path in data.glob("ud/*.txt")}
    for path, name in found.items():
        language = NAMES.get(name, name)
        place = folder / language / f"{path.parent.name}-{path.name}"
        place.parent.mkdir(parents=True, exist_ok=True)
        copyfile(path, place)


def halves(xnli: Path, folder: Path) -> None:
    """English: train-en.tsv and dev-en.tsv of the first half; all: test-LANGUAGE.tsv."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(xnli.glob("dev-*.tsv.gz")):
        lines = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
        half = len(lines) // 6 * 3
        language = path.name.removesuffix(".tsv.gz").removeprefix("dev-")
        write(folder / f"test-{language}.tsv", lines[half:])
        if language == "en":
            held_out = [n // 3 % HELD_OUT == 0 for n in range(half)]
            pairs = list(zip(held_out, lines[:half], strict=True))
            write(folder / "dev-en.tsv", (line for out, line in pairs if out))
            write(folder / "train-en.tsv", (line for out, line in pairs if not out))


def german(xnli: Path, folder: Path, halved: Path) -> None:
    """The whole German test set, with the same English files beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    test = gzip.decompress((xnli / "test-de.labelled.txt.gz").read_bytes())
    (folder / "test-de.tsv").write_bytes(test)
    for name in ("train-en.tsv", "dev-en.tsv"):
        copyfile(halved / name, folder / name)


def write(path: Path, lines: Iterable[str]) -> None:
    path.write_bytes("".join(lines).encode())  # as they are: no line end is changed


if __name__ == "__main__":
    data, folder = map(Path, sys.argv[1:])
    texts(data, folder / "texts")
    for name in ("xquad", "mlqa", "tydiqa_goldp"):
        for path in data.glob(f"xtreme/{name}/*.json.gz"):
            (folder / "tasks" / name).mkdir(parents=True, exist_ok=True)
            copyfile(path, folder / "tasks" / name / path.name)
    halves(data / "xtreme/xnli", folder / "tasks/xnli")
    german(data / "xtreme/xnli", folder / "german", folder / "tasks/xnli")
