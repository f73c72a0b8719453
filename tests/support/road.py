"""What the tests of the road from raw text to BLEU have in common."""

import importlib.util
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
from tests.support.texts import ODD, corpus, sentences, write

__all__ = [
    "ODD",
    "Corpus",
    "Search",
    "cells",
    "clean",
    "corpus",
    "download",
    "evaluate",
    "interactive",
    "prepare",
    "programs",
    "raw",
    "score",
    "sentences",
    "stages",
    "subwords",
    "test_sets",
    "text",
    "train",
    "write",
]

EXAMPLES = Path(__file__).parents[2] / "examples"


def script(name: str) -> ModuleType:
    """A file of the examples as a module; it does nothing when imported."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, EXAMPLES / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


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
