"""Checkpoints are complete or absent, and one training at a time writes to a folder."""

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError
from ..files import TMP_SUFFIX, atomic_file
from .patch import Proxy, intercepts, replaces

logger = logging.getLogger(__name__)

#: file in a training's folder that the training locks while it runs
LOCK_NAME = ".training.lock"


def save(state: Any, path: str) -> None:
    """Save with torch, completely or not at all, and without a retry: a full disk stays full."""
    with atomic_file(path, "wb") as file:
        torch.save(state, file)


@intercepts(
    "fairseq.checkpoint_utils:torch_persistent_save",
    correctness="a run that is killed while it saves, or a system crash, truncates a checkpoint",
)
def save_completely(
    torch_persistent_save: Callable, obj: Any, filename: str, async_write: bool = False
) -> None:
    if async_write:
        torch_persistent_save(obj, filename, async_write)
    else:
        save(obj, filename)


@replaces(
    "fairseq.checkpoint_utils:PathManager",
    correctness="a run that is killed while it copies checkpoint_last.pt truncates it",
)
def copy_completely(path_manager: Any) -> Any:
    def copy(source: str, target: str, overwrite: bool = False) -> str:
        with atomic_file(target, "wb") as file, open(source, "rb") as original:
            shutil.copyfileobj(original, file, 1 << 20)
        return target

    return Proxy(path_manager, copy=copy)


@intercepts(
    "fairseq.checkpoint_utils:save_checkpoint",
    correctness="--no-epoch-checkpoints --save-interval-updates N saves nothing at an epoch's end, "
    "and an average of the last checkpoints includes an older one",
)
def save_updates_at_epoch_ends(
    save_checkpoint: Callable, cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any
) -> Any:
    if cfg.no_epoch_checkpoints:
        epoch_itr = Proxy(epoch_itr, end_of_epoch=lambda: False)
    return save_checkpoint(cfg, trainer, epoch_itr, val_loss)


@contextmanager
def lock_folder(folder: str) -> Iterator[None]:
    """Keep other trainings out of a folder, and remove leftovers of killed saves from it.

    The system's lock (flock) ends with the process that holds it, even if the process is killed. A
    lock of filelock would stay with data loader processes that outlive a killed run.

    Raises:
        UserError: the folder can't be made or opened, or another training holds the lock
    """
    path = os.path.abspath(os.path.join(folder, LOCK_NAME))  # Hydra changes the working directory
    try:
        os.makedirs(folder, exist_ok=True)
        descriptors = [lock_file(path)]
    except BlockingIOError as error:
        raise UserError(
            f"--save-dir {folder} is in use by another training: wait until it ends, or give "
            "another folder"
        ) from error
    except OSError as error:
        raise UserError(
            f"--save-dir {folder} can't be written to: {error.strerror}; give another folder"
        ) from error

    # A forked process that reads data may outlive this one.
    def close() -> None:
        while descriptors:
            os.close(descriptors.pop())

    os.register_at_fork(after_in_child=close)
    try:
        for leftover in Path(folder).glob(f"checkpoint*.pt*{TMP_SUFFIX}"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        Path(path).unlink(missing_ok=True)
        close()


def lock_file(path: str) -> int:
    """Make a file and lock it; the descriptor.

    It is a file and open for writing: NFS passes no lock of a folder on to other nodes, and refuses
    an exclusive lock of a descriptor for reading.

    Raises:
        BlockingIOError: another process holds the lock
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise
        except OSError as error:
            logger.warning(
                f"{os.path.dirname(path)} can't be locked ({error.strerror}): make sure that no "
                "other training writes to it"
            )
            return descriptor
        os.close(descriptor)  # the process that held the lock has removed the file meanwhile
