"""The scripts of examples/roberta as modules, and a tiny encoder in transformers."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.hf.conftest import export
from tests.support import hugging

ROBERTA = Path(__file__).parents[2] / "examples" / "roberta"


@pytest.fixture(scope="session")
def script():
    """A function that imports a script by its name, as the scripts import each other."""
    for library in ("datasets", "sklearn", "transformers"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    before = list(sys.path)
    sys.path.insert(0, str(ROBERTA))
    yield import_module
    sys.path[:] = before


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory) -> Path:
    """A tiny masked language model with segments, exported."""
    folder = tmp_path_factory.mktemp("pretrained")
    path = hugging.checkpoint(
        folder, "bert_diet_rel", task="masked_lm", max_positions=128, tokens_per_sample=128
    )
    export(path, folder / "hf")
    return folder / "hf"
