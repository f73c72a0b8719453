"""What the tests of the road from raw text to BLEU have in common."""

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from diet_fairseq.recipes.common import cells, download, programs, stages, subwords, text
from diet_fairseq.recipes.translation import (
    clean,
    evaluate,
    interactive,
    prepare,
    score,
    test_sets,
    train,
)
from diet_fairseq.recipes.translation.corpora import raw
from diet_fairseq.recipes.translation.corpora.corpus import Corpus, Search
from diet_fairseq_cli import main
from tests.support import commands as fairseq

__all__ = [
    "Corpus",
    "Search",
    "cells",
    "clean",
    "download",
    "evaluate",
    "interactive",
    "prepare",
    "programs",
    "raw",
    "score",
    "stages",
    "subwords",
    "test_sets",
    "text",
    "train",
]

EXAMPLES = Path(__file__).parents[2] / "examples"

#: what may stand inside a line and must not end it, nor join or shift lines
ODD = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\xa0\u3000\u200b\u2060\t\x00\x07\x93\ufeff\u2581|@@ </s>"


def script(name: str) -> ModuleType:
    """A file of the examples as a module; it does nothing when imported."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, EXAMPLES / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write(path: Path, lines: list[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def sentences(number: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    words = [a + b + c for a in "bdk" for b in "aeiou" for c in ["n", "r", "st", "lm"]]
    return [" ".join(draw.choices(words, k=draw.randint(3, 9))) + "." for _ in range(number)]


def corpus(folder: Path, train: int = 300, odd: bool = True) -> Path:
    """A German text and its mirror image as English, with odd things among the lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in {"train": train, "valid": 12, "test": 12}.items():
        german = sentences(size, seed=size)
        english = [line[::-1] for line in german]
        if odd:
            german[3] = ODD.join(german[3].split())
            english[4] = ""
            german[5] += "\r"
        write(folder / f"{split}.de", german)
        write(folder / f"{split}.en", english)
    return folder


def use(patch: pytest.MonkeyPatch) -> None:
    """Have fairseq's commands run in a fork of a process that has imported it: no seconds lost."""

    def run(command: list[str], log: Path) -> None:
        done = fairseq.run(
            command[2].removeprefix("fairseq_cli."), *command[3:], plugin=False, limit=600
        )
        log.write_text(done.text)
        assert done.status == 0, done.text

    def become(_: str, command: list[str], __: dict[str, str]) -> None:
        done = fairseq.run("train", *command[3:], limit=600)
        assert done.status == 0, done.text

    patch.setattr(programs, "run", run)
    patch.setattr(programs.os, "execve", become)


def run(corpus: Corpus, command: str, *arguments: object) -> None:
    """``diet-fairseq translation`` with these arguments, in this process."""
    main(["translation", command, f"--corpus={corpus.name}", *map(str, arguments)])
