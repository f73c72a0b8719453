"""A run's progress in its checkpoint: fairseq continues to count with these numbers.

Anything else would end the resumed run later, when it has worked for an epoch.
"""

from typing import Any

import numpy as np
import torch

from ..optim.resuming import number_in
from .configuration import Refused
from .plain import quoted

_MOST = 1 << 31  # updates, epochs and batches: fairseq makes seeds of them


def check(state: dict[str, Any]) -> None:
    """Refuse counts and scores that are not numbers; ``state`` is as fairseq has upgraded it."""
    history, extra = state["optimizer_history"][-1], state["extra_state"]
    place = extra["train_iterator"] or {}
    for counts, name in (
        (history, "num_updates"),
        (place, "epoch"),
        (place, "iterations_in_epoch"),
    ):
        count = counts.get(name, 0)
        if type(count) is not int or not 0 <= count <= _MOST:
            raise Refused(f"its {name} is {quoted(count)}, no count from 0 to {_MOST:,}")
    for name in ("batches", "shards"):
        count = place.get(name, 1)
        if type(count) is not int or not 1 <= count <= _MOST:
            raise Refused(f"its {name} is {quoted(count)}, no count from 1 to {_MOST:,}")
    for scores, name in (
        (extra, "best"),
        (extra, "val_loss"),
        (history.get("lr_scheduler_state") or {}, "best"),
    ):
        _check_number(name, scores.get(name))
    past = extra.get("previous_training_time", 0)
    if number_in(past) is None:
        raise Refused(f"its previous_training_time is {quoted(past)}, no number")
    for meters in (extra.get("metrics") or {}).values():
        for _, name, _, values in meters:
            for value in values.values():
                _check_number(f"meter {name}", value)


def _check_number(name: str, value: Any) -> None:
    numbers = (type(None), int, float, np.number, np.ndarray, torch.Tensor)
    if not isinstance(value, numbers):
        raise Refused(f"its {quoted(name)[1:-1]} is {quoted(value)}, no number")
