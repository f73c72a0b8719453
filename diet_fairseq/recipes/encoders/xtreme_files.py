"""XTREME's published files: found in a folder, or fetched into it.

MLQA's, TyDiQA's and XNLI's addresses are those of google-research/xtreme, scripts/download_data.sh.
What is published in archives, or for all languages together, gets the names that XTREME's own
preparation gives it.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ...errors import UserError, rephrased
from ..common.download import extract, fetch
from ..common.json_files import read_json
from ..common.text import read_lines, write_lines
from ..common.turns import turn
from .glue_tasks import Task, columns, read

#: names of files of ours, and their lines
Made = Iterator[tuple[str, Iterable[str]]]
#: before the names of what is not finished: no file of ours is called so
UNPACKED = "unpacked."


@dataclass(frozen=True)
class Published:
    """Where the files are whose whole name matches ``names``.

    ``url`` is the folder of them or, with ``make``, a file that they are made of; with ``wanted``
    an archive of such files, whose names match that.
    """

    names: str
    url: str
    make: Callable[[Path], Made] | None = None
    wanted: str = ""

    def fetch(self, name: str, data: Path) -> None:
        """Fetch the file of this name, and what is published together with it."""
        if not self.make:
            fetch(self.url + name, data / name)
            return
        file = data / PurePosixPath(self.url).name
        fetch(self.url, file)
        with TemporaryDirectory(dir=data, prefix=UNPACKED) as folder:
            if self.wanted:
                extract(file, self.wanted, Path(folder), UNPACKED)
            try:
                for path in sorted(Path(folder).iterdir()) if self.wanted else [file]:
                    self._write(self.make(path), data)
                if not find(data, name):
                    raise UserError("that is not in it")
            except UserError as error:
                said = str(error).replace(f"{folder}/{UNPACKED}", "")
                raise UserError(
                    f"{file}: {name} can't be made of it ({said}): put that into {data} yourself"
                ) from error
        file.unlink()

    def _write(self, made: Made, data: Path) -> None:
        for name, lines in made:  # names may be out of the file
            if re.fullmatch(self.names, name) and not find(data, name):
                write_lines(data / name, lines)


def fetch_missing(names: Iterable[str], data: Path) -> None:
    """Fetch what is `PUBLISHED` of these files and not in the folder.

    Raises:
        UserError: it can't be fetched, or has another form than it had
    """
    for name in names:
        place = next((one for one in PUBLISHED if re.fullmatch(one.names, name)), None)
        if not place or find(data, name):
            continue
        try:
            with turn(data, "download", lambda: print(f"{data}: waits for another download")):
                if not find(data, name):  # by now
                    place.fetch(name, data)
        except UserError as error:
            said = str(error).replace("use --from-dir with files you have", f"put it in {data}")
            raise UserError(said) from error


def find(data: Path, name: str) -> Path | None:
    """The file of this name, gzipped or not, however deep in the folder."""
    return next((path for end in ("", ".gz") for path in sorted(data.rglob(name + end))), None)


def unchanged(path: Path) -> Made:
    yield path.name.removeprefix(UNPACKED), read_lines(path)


def tydiqa_dev(path: Path) -> Made:
    """``tydiqa-goldp-dev-LANGUAGE.json``, the language in words."""
    language = TYDIQA[path.stem.rpartition("-")[2]]
    yield f"tydiqa.goldp.{language}.dev.json", read_lines(path)


def tydiqa_train(path: Path) -> Made:
    """The English questions, out of those in all languages: their ids begin with the language."""
    with rephrased(
        lambda error: f"{path} has no paragraphs and ids as in TyDiQA-GoldP ({error!r})"
    ):
        paragraphs = [one for article in read_json(path)["data"] for one in article["paragraphs"]]
        for one in paragraphs:
            one["qas"] = [asked for asked in one["qas"] if asked["id"].startswith("english-")]
        english = [one for one in paragraphs if one["qas"]]
    if not english:
        raise UserError(f"{path} has no question whose id begins with 'english-'")
    yield "tydiqa.goldp.en.train.json", [json.dumps({"data": [{"paragraphs": english}]})]


def xnli(path: Path) -> Made:
    """``xnli.dev.tsv`` and ``xnli.test.tsv``, which have all languages."""
    task = Task("XNLI", columns("language", "sentence1", "sentence2", "gold_label"))
    lines = defaultdict(list)
    for (language, *pair), label, _ in read(path, task, task.columns):
        lines[language].append("\t".join([*pair, label]))
    split = path.stem.rpartition(".")[2]
    yield from ((f"{split}-{language}.tsv", some) for language, some in lines.items())


def multinli(path: Path) -> Made:
    """``multinli.train.en.tsv``."""
    task = Task("MultiNLI", columns("premise", "hypo", "label"))
    labels = {"contradictory": "contradiction"}
    yield (
        "train-en.tsv",
        (
            "\t".join([*pair, labels.get(label, label)])
            for pair, label, _ in read(path, task, task.columns)
        ),
    )


TYDIQA = {
    "arabic": "ar",
    "bengali": "bn",
    "english": "en",
    "finnish": "fi",
    "indonesian": "id",
    "korean": "ko",
    "russian": "ru",
    "swahili": "sw",
    "telugu": "te",
}
META = "https://dl.fbaipublicfiles.com"
GOOGLE = "https://storage.googleapis.com/tydiqa/v1.1"
PUBLISHED = (
    Published(r"train-v1\.1\.json", "https://rajpurkar.github.io/SQuAD-explorer/dataset/"),
    Published(
        r"xquad\.\w\w\.json",
        "https://raw.githubusercontent.com/google-deepmind/xquad/"
        "7d30520c717524000f0d9d2f9c10a069acd9d285/",
    ),
    Published(
        r"test-context-\w\w-question-\w\w\.json",
        f"{META}/MLQA/MLQA_V1.zip",
        unchanged,
        r"test-context-.*\.json",
    ),
    Published(
        r"tydiqa\.goldp\.\w\w\.dev\.json",
        f"{GOOGLE}/tydiqa-goldp-v1.1-dev.tgz",
        tydiqa_dev,
        rf"tydiqa-goldp-dev-({'|'.join(TYDIQA)})\.json",
    ),
    Published(
        r"tydiqa\.goldp\.en\.train\.json", f"{GOOGLE}/tydiqa-goldp-v1.1-train.json", tydiqa_train
    ),
    Published(r"(dev|test)-\w\w\.tsv", f"{META}/XNLI/XNLI-1.0.zip", xnli, r"xnli\.(dev|test)\.tsv"),
    Published(
        r"train-en\.tsv",
        f"{META}/XNLI/XNLI-MT-1.0.zip",
        multinli,
        r"multinli\.train\.en\.tsv",
    ),
)
