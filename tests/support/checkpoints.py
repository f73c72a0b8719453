"""Checkpoints made by hand, and the errors of those that are refused."""

import os

import pytest
import torch

from diet_fairseq import checkpoints
from diet_fairseq.errors import UserError


def saved(path, **parts):
    """A checkpoint that holds the given values."""
    torch.save({"model": {}, "cfg": {}, **parts}, path)
    return path


def refusal(path):
    with pytest.raises(UserError) as error:
        checkpoints.read(path)
    text = str(error.value)
    assert text.isprintable()
    assert len(text) < 1000
    assert text.startswith(f"{path} is ")
    return text.removeprefix(f"{path} is ")


class Touch:
    """An object that creates a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)
