"""Models of transformers, whose code others wrote."""

import importlib
import sys
from types import ModuleType

import pytest


def import_modeling(name: str) -> ModuleType:
    """``transformers.models.NAME``'s modeling; without transformers the test is skipped.

    transformers tries to import torchaudio, which fairseq brings along, and which fails beside a
    CPU build of PyTorch: None says that it isn't there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchaudio", None)
        pytest.importorskip("transformers", reason="transformers is not installed")
        return importlib.import_module(f"transformers.models.{name}.modeling_{name}")
