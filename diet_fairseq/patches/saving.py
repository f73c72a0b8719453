"""Checkpoints are complete or absent, and one training at a time writes to a folder."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from ..atomic import ASIDE, written
from ..errors import UserError
from .patch import ModuleView


def save(obj: Any, filename: str) -> None:
    """Save with torch, completely or not at all. A full disk stays full, so there is no retry."""
    with written(filename, "wb") as file:
        torch.save(obj, file)


def save_completely(torch_persistent_save: Callable) -> Callable:
    """``torch_persistent_save`` by `save`; ``--write-checkpoints-asynchronously`` is fairseq's."""

    @wraps(torch_persistent_save)
    def wrapper(obj: Any, filename: str, async_write: bool = False) -> None:
        if async_write:
            torch_persistent_save(obj, filename, async_write)
        else:
            save(obj, filename)

    return wrapper


def with_complete_copies(path_manager: Any) -> Any:
    """``PathManager`` whose ``copy`` leaves a whole file or none."""

    def copy(source: str, target: str, overwrite: bool = False) -> str:
        with written(target, "wb") as file, open(source, "rb") as original:
            shutil.copyfileobj(original, file, 1 << 20)
        return target

    return ModuleView(path_manager, copy=copy)


@contextmanager
def lock(folder: str) -> Iterator[None]:
    """Keep other trainings out of a folder, and remove leftovers of killed saves from it.

    The lock is the system's (flock) on the folder itself: it ends with the process that holds it,
    however that ends. filelock's would stay with data loader processes that outlive a killed run.

    Raises:
        UserError: the folder can't be made or opened, or another training holds the lock
    """
    try:
        os.makedirs(folder, exist_ok=True)
        held = [os.open(folder, os.O_RDONLY)]
    except OSError as error:
        raise UserError(
            f"--save-dir {folder} can't be written to: {error.strerror}; give another folder"
        ) from error

    def release() -> None:
        for descriptor in held:
            os.close(descriptor)

    # A forked process that reads data may live a little longer than this one.
    os.register_at_fork(after_in_child=release)
    try:
        fcntl.flock(held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(held.pop())
        raise UserError(
            f"--save-dir {folder} is in use by another training: wait until it ends, or give "
            "another folder"
        ) from error
    except OSError:
        pass  # some network file systems have no locks
    try:
        for leftover in Path(folder).glob(f"checkpoint*.pt*{ASIDE}"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(held.pop())


class MidEpoch:
    """An epoch's iterator that doesn't say that it is at its end."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def end_of_epoch(self) -> bool:
        return False


def save_updates_at_epoch_ends(save_checkpoint: Callable) -> Callable:
    """``save_checkpoint`` that saves a checkpoint of updates where an epoch ends, too.

    With ``--no-epoch-checkpoints --save-interval-updates N`` fairseq saves none there, and an
    average of the last checkpoints takes an older one instead.
    """

    @wraps(save_checkpoint)
    def wrapper(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
        if cfg.no_epoch_checkpoints:
            epoch_itr = MidEpoch(epoch_itr)
        return save_checkpoint(cfg, trainer, epoch_itr, val_loss)

    return wrapper
