"""Checkpoints of version 0.2's fine-tuning tasks ``glue`` and ``question_answering``."""

from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from omegaconf import OmegaConf, open_dict

from ..input_files import VOCABULARY, check_regular
from ..tasks.diet_fine_tuned import GLUE, QUESTION_ANSWERING


def replace_task(state: dict[str, Any], data: Path) -> bool:
    """Replace such a task in a state by masked language modelling, with the classification head.

    Args:
        state: the return value of fairseq's ``load_checkpoint_to_cpu``, changed in place
        data: folder of the dictionaries

    Returns:
        whether the checkpoint is of one of these tasks
    """
    cfg: Any = state.get("cfg")
    task = cfg["task"]["_name"] if cfg and cfg["task"] else None
    if task not in (GLUE, QUESTION_ANSWERING):
        return False
    folder = data / "input0" if task == GLUE else data
    with open_dict(cfg):
        cfg["task"] = OmegaConf.create({"_name": "masked_lm", "data": str(folder)})
        cfg["model"].load_checkpoint_heads = True
    return True


def label_names(dictionary: Any) -> list[str]:
    """The labels in the order of their classes, without fairseq's extra symbols."""
    names = dictionary.symbols[dictionary.nspecial :]
    return [name for name in names if name != "<mask>" and not name.startswith("madeupword")]


def labels_in(data: Path) -> list[str]:
    """The labels of a classification's data; empty for other data."""
    path = data / "label" / "dict.txt"
    if not path.exists():
        return []
    check_regular(path, VOCABULARY)
    return label_names(Dictionary.load(str(path)))
