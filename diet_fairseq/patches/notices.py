"""Warnings of other packages over fairseq's use of old interfaces, which users can't change."""

import logging
import warnings
from collections.abc import Callable

#: The category, how the message begins, the module that says it (regular expressions).
WARNINGS: list[tuple[type[Warning], str, str]] = [
    # Can go when fairseq calls hydra.initialize and hydra.compose as Hydra 1.2 has them.
    (UserWarning, r"hydra\.experimental\.\w+\(\) is no longer experimental", r"hydra\."),
    (UserWarning, r"\s*The version_base parameter is not specified", r"hydra\."),
    (UserWarning, r"\s*The strict flag in the compose API is deprecated", r"hydra\."),
    # Can go when fairseq/config has no `# @package _group_`, and no schema that has the name of a
    # file. (The last is said in the name of whatever program is running.)
    (UserWarning, r"In '[^']*': Usage of deprecated keyword in package header", r"hydra\."),
    (UserWarning, r"\s*'config' is validated against ConfigStore schema", r""),
    # Can go when fairseq's iterators ask for pinned memory only where there is a GPU.
    (UserWarning, r"'pin_memory' argument is set as true but no", r"torch\.utils\.data"),
    # Can go when fairseq calls torch.amp instead of torch.cuda.amp.
    (FutureWarning, r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated", r"fairseq\."),
    # Can go when fairseq's decoder has one type for both masks; only stock attention gets there.
    (UserWarning, r"Support for mismatched key_padding_mask and attn_mask", r"torch\.nn\."),
]


def without_warnings() -> Callable[[], None]:
    """Ignore `WARNINGS`; returns a function that undoes it."""
    before = list(warnings.filters)
    for category, message, source in WARNINGS:
        warnings.filterwarnings("ignore", message, category, source)
    ours = [entry for entry in warnings.filters if entry not in before]

    def undo() -> None:
        warnings.filters[:] = [entry for entry in warnings.filters if entry not in ours]  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]

    return undo


def quiet_hydra() -> Callable[[], None]:
    """Drop what Hydra logs below WARNING; returns a function that undoes it."""
    log = logging.getLogger("hydra")
    before = log.level
    log.setLevel(logging.WARNING)
    return lambda: log.setLevel(before)
