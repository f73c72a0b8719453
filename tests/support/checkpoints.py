"""Checkpoints made by hand, and the errors of those that are refused."""

import os
import pickle
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from diet_fairseq import checkpoints
from diet_fairseq.errors import UserError


def saved(path, **parts):
    """A checkpoint that holds the given values."""
    torch.save({"model": {}, "cfg": {}, **parts}, path)
    return path


def write_checkpoint(path: Path, args: Namespace, state: dict, task: str | None = None) -> Path:
    cfg: Any = OmegaConf.to_container(
        convert_namespace_to_omegaconf(args), resolve=True, enum_to_str=True
    )
    if task is not None:
        cfg["task"]["_name"] = task
    history = {"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    torch.save(
        {
            "args": None,
            "cfg": cfg,
            "model": state,
            "optimizer_history": [history],
            "extra_state": {"epoch": 1, "train_iterator": {"epoch": 1}},
        },
        path,
    )
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


class HiddenValue:
    """A value in a Namespace whose pickle makes it an array, with the value as its numbers.

    A pickle may set an object's state and its slots; ``__class__`` counts as one. Version 0.3.0 and
    earlier took the value as it was.
    """

    def __init__(self, value):
        self.value = value


#: the pickler that is written in Python
PythonPickler: Any = vars(pickle)["_Pickler"]


class _HidingPickler(PythonPickler):
    def save(self, value, save_persistent_id=True):
        match value:
            case type() if value is HiddenValue:
                self.write(b"cnumpy\nndarray\n")
            case HiddenValue():
                self.write(b"cargparse\nNamespace\n)\x81")
                self.save(({"numbers": value.value}, {"__class__": HiddenValue}))
                self.write(b"b")
            case _:
                super().save(value, save_persistent_id)


class HidingPickle:
    """The module ``pickle`` for ``torch.save``, which writes each `HiddenValue` as described."""

    __name__ = "pickle"
    Pickler, Unpickler, dumps = _HidingPickler, pickle.Unpickler, staticmethod(pickle.dumps)
