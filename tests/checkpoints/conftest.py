"""A checkpoint of stock fairseq, which the tests read and edit copies of."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from diet_fairseq import checkpoints
from diet_fairseq.patches.table import PATCHES
from tests.support.commands import TINY, run


@pytest.fixture(scope="module", autouse=True)
def _applied() -> None:
    PATCHES.apply()
    PATCHES.apply()  # a second call changes nothing


@pytest.fixture(scope="session")
def stock(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that fairseq wrote without us, with BLEU's arrays in its meters."""
    folder = tmp_path_factory.mktemp("stock")
    bleu = ("--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 5}')
    done = run("train", data, *TINY, "--max-update", 2, *bleu, "--save-dir", folder, plugin=False)
    assert done.status == 0, done.err
    return folder / "checkpoint_last.pt"


@pytest.fixture
def edited(stock: Path, tmp_path: Path) -> Callable[..., Path]:
    """The checkpoint with other options: `model__dropout=1` for cfg, `dropout=1` as of old."""

    def edit(**values: Any) -> Path:
        state = checkpoints.read(stock)
        if not all("__" in place for place in values):
            state["args"], state["cfg"] = state["cfg"]["model"], None
        for place, value in values.items():
            part, _, option = place.partition("__")
            if not option:
                setattr(state["args"], part, value)
                continue
            if state["cfg"][part] is None:
                state["cfg"][part] = {}
            config = state["cfg"][part]
            (vars(config) if isinstance(config, Namespace) else config)[option] = value
        path = tmp_path / "edited.pt"
        torch.save(state, path)
        return path

    return edit
