"""A run's counts and scores in its checkpoint, with which fairseq continues.

A wrong type would end the resumed run after its first epoch.
"""

from typing import Any

import numpy as np
import torch

from ..optim.resuming import number_in
from .plain import Refused, quoted

_MOST = 1 << 31  # updates, epochs and batches: fairseq makes seeds of them


def check(state: dict[str, Any]) -> None:
    """Refuse counts and scores that are not numbers; fairseq has upgraded ``state``."""
    history, extra = state["optimizer_history"][-1], state["extra_state"]
    iterator = extra["train_iterator"] or {}
    for section, name, least in (
        (history, "num_updates", 0),
        (iterator, "epoch", 0),
        (iterator, "iterations_in_epoch", 0),
        (iterator, "batches", 1),
        (iterator, "shards", 1),
    ):
        count = section.get(name, least)
        if type(count) is not int or not least <= count <= _MOST:
            raise Refused(f"its {name} is {quoted(count)}, no count from {least} to {_MOST:,}")
    time = extra.get("previous_training_time", 0)
    if number_in(time) is None:
        raise Refused(f"its previous_training_time is {quoted(time)}, no number")
    scheduler = history.get("lr_scheduler_state") or {}
    for section, name in ((extra, "best"), (extra, "val_loss"), (scheduler, "best")):
        _check_number(name, section.get(name))
    for meters in (extra.get("metrics") or {}).values():
        for _, name, _, values in meters:
            for value in values.values():
                _check_number(f"meter {name}", value)


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, (type(None), int, float, np.number, np.ndarray, torch.Tensor)):
        raise Refused(f"its {quoted(name)[1:-1]} is {quoted(value)}, no number")
