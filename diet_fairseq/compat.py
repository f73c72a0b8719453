"""What fairseq needs to run with today's PyTorch, NumPy and Hydra. Each item says when it can go.

Checkpoints have files of their own: `loading` (safe) and `saving` (atomic), and `archives` of them;
masked language modelling has `masking`, what ends a run `training`.
"""

import logging
import warnings
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numpy as np
from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
from fairseq.tasks import FairseqTask

from . import (
    archives,
    command_line,
    loading,
    long_lines,
    masking,
    program,
    progress,
    saving,
    training,
    validation,
    warm_start,
)
from .errors import UserError
from .stand_in import StandIn

#: What fairseq's use of old interfaces makes other packages say, and users can do nothing about:
#: the category, how the message begins, the module that says it (regular expressions).
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


def _whole(batch_by_size: Callable) -> Callable:
    """Keep the last batch, which fairseq drops if its size is no multiple of 8: of 12
    sentences 8 are left, of 7 none, for ``fairseq-generate`` to translate and score as well.

    Batches are consecutive pieces of ``indices``, so what is missing is at their end.
    """

    @wraps(batch_by_size)
    def wrapper(indices: Any, *args: Any, **kwargs: Any) -> list:
        if not len(indices):
            raise UserError(
                "there is nothing to make batches of: the data is empty, or all of it is longer "
                "than the model takes (see the warnings above); give a smaller "
                "--tokens-per-sample, or train with larger --max-positions, or "
                "--max-source-positions and --max-target-positions"
            )
        batches = list(batch_by_size(indices, *args, **kwargs))
        kept = sum(map(len, batches))
        if kept < len(indices) and kwargs.get("fixed_shapes") is None:
            batches.append(indices[kept:])
        return batches

    return wrapper


def _same_batches(get_batch_iterator: Callable) -> Callable:
    """Make a resumed run's batches those of a run that was not interrupted.

    That one makes them in its first epoch, with a seed that the epoch is part of, and keeps them;
    fairseq makes the resumed run's with the epoch in which it resumes, so that sentences come
    twice in that epoch and others never.
    """

    @wraps(get_batch_iterator)
    def wrapper(self: Any, dataset: Any, *args: Any, epoch: int = 1, **kwargs: Any) -> Any:
        fresh = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
        if fresh or not self.can_reuse_epoch_itr(dataset) or dataset in self.dataset_to_epoch_iter:
            return get_batch_iterator(self, dataset, *args, epoch=epoch, **kwargs)
        iterator = get_batch_iterator(self, dataset, *args, epoch=1, **kwargs)
        iterator.epoch = max(epoch, 1)
        dataset.set_epoch(iterator.epoch)
        return iterator

    return wrapper


def apply() -> None:
    """Make fairseq run safely on today's packages. A second call changes nothing."""
    loading.apply()
    archives.apply()
    program.apply()
    progress.apply()
    saving.apply()
    masking.apply()
    training.apply()
    warm_start.apply()
    long_lines.apply()
    command_line.apply()
    # outermost: what it takes from the checkpoint need not stand on the command line
    validation.apply()
    # Can go when fairseq doesn't ask for `np.compat`, which NumPy 2 has no more: language
    # modelling (`--sample-break-mode eos`) and bucketed lengths do.
    for module in (language_pair_dataset, token_block_dataset):
        if not isinstance(module.np, StandIn):
            module.np = StandIn(np, compat=SimpleNamespace(long=np.int64))
    # Can go when fairseq translates, scores and trains on all sentences.
    if not hasattr(data_utils.batch_by_size, "__wrapped__"):
        data_utils.batch_by_size = _whole(data_utils.batch_by_size)
    # Can go when fairseq resumes with the batches that it stopped with.
    if not hasattr(FairseqTask.get_batch_iterator, "__wrapped__"):
        FairseqTask.get_batch_iterator = _same_batches(FairseqTask.get_batch_iterator)
    # Can go when fairseq-generate leaves the level of Hydra's log alone.
    logging.getLogger("hydra").setLevel(logging.WARNING)
    for category, message, source in WARNINGS:
        warnings.filterwarnings("ignore", message, category, source)
