"""Corpora that trainings of fairseq's command read; no test changes them."""

from pathlib import Path

import pytest

from tests.support import commands


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preprocessed sentence pairs, in the folder with their text."""
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return commands.documents(tmp_path_factory.mktemp("documents"))
