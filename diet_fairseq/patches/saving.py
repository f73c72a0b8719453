"""Checkpoints are complete or absent, and training doesn't begin where they can't be saved."""

import fcntl
import operator
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from ..atomic import ASIDE, written
from ..config import flag
from ..errors import UserError
from .stand_in import StandIn

#: what fairseq logs beside the measures: words and sentences a batch, words and updates a second
SIZES = {"wpb", "bsz", "wps", "ups", "num_updates"}
LAST = "checkpoint_last.pt"  # fairseq's, of --restore-file


def save(obj: Any, filename: str, async_write: bool = False) -> None:
    """Save with torch, completely or not at all. Nothing is retried: a full disk stays full."""
    with written(filename, "wb") as file:
        torch.save(obj, file)


def copy(source: str, target: str, overwrite: bool = False) -> str:
    """Copy a file, completely or not at all."""
    with written(target, "wb") as file, open(source, "rb") as original:
        shutil.copyfileobj(original, file, 1 << 20)
    return target


@contextmanager
def _writable(folder: str) -> Iterator[None]:
    try:
        os.makedirs(folder, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(
            f"--save-dir {folder} can't be written to: {error.strerror}; give another folder"
        ) from error


def prepare_save_dir(folder: str) -> None:
    """Refuse a folder that can't be written to, and remove what a killed save left in it."""
    with _writable(folder):
        with tempfile.TemporaryFile(dir=folder):
            pass
        for leftover in Path(folder).glob(f"checkpoint*.pt*{ASIDE}"):
            leftover.unlink()


@contextmanager
def alone_in(folder: str) -> Iterator[None]:
    """Refuse a folder that another training writes to, and keep others out of this one.

    The system forgets the lock with the process that holds it, however that ends.
    """
    with _writable(folder):
        held = [os.open(folder, os.O_RDONLY)]

    def let_go() -> None:
        for lock in held:
            os.close(lock)

    # A process that was forked, to read data, may live a little longer, and would hold it, too.
    os.register_at_fork(after_in_child=let_go)
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
        yield
    finally:
        os.close(held.pop())


def check_options(checkpoint: Any) -> None:
    """Refuse checkpoint options that fairseq would silently ignore."""
    if checkpoint.write_checkpoints_asynchronously:
        # fairseq would write in place, leave checkpoint_last.pt out, or stop with status 0.
        raise UserError("--write-checkpoints-asynchronously can't save safely: leave it out")
    for option in ("restore_file", "finetune_from_model"):
        path = getattr(checkpoint, option)
        if path in (None, LAST) or PathManager.exists(path):
            continue
        suffix = checkpoint.checkpoint_suffix
        if suffix and PathManager.exists(path.replace(".pt", suffix + ".pt")):
            continue
        inside = os.path.join(checkpoint.save_dir, path)
        advice = f"did you mean {inside}?" if os.path.exists(inside) else "check the path"
        raise UserError(f"{flag(option)} {path}: there is no such file; {advice}")


def numbering_epochs_ends(save_checkpoint: Callable) -> Callable:
    """Without checkpoints of epochs, save one of updates that are due where an epoch ends, too.

    fairseq saves neither there, and an average of the last N takes an older one instead.
    """

    @wraps(save_checkpoint)
    def wrapper(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
        if cfg.no_epoch_checkpoints:
            epoch_itr = StandIn(epoch_itr, end_of_epoch=lambda: False)
        return save_checkpoint(cfg, trainer, epoch_itr, val_loss)

    return wrapper


def keeping_best(validate_and_save: Callable) -> Callable:
    """Keep ``checkpoint_best.pt`` whenever a validation is the best, not only where a save is due.

    fairseq remembers the best score when it saves: a better one that it doesn't know is unsaved.
    """

    @wraps(validate_and_save)
    def wrapper(cfg: Any, trainer: Any, task: Any, epoch_itr: Any, *args: Any) -> Any:
        losses, should_stop = validate_and_save(cfg, trainer, task, epoch_itr, *args)
        loss, best = losses[0], getattr(checkpoint_utils.save_checkpoint, "best", None)
        better = operator.gt if cfg.checkpoint.maximize_best_checkpoint_metric else operator.lt
        if loss is not None and (best is None or better(loss, best)):
            # A run goes on from checkpoint_last.pt, and saves that as often as it is told to.
            only_best = StandIn(cfg.checkpoint, no_last_checkpoints=True)
            checkpoint_utils.save_checkpoint(only_best, trainer, epoch_itr, loss)
        return losses, should_stop

    return wrapper


class Measures(OrderedDict):
    """What a validation measured; fairseq takes --best-checkpoint-metric from it."""

    def __missing__(self, name: str) -> Any:
        known = ", ".join(sorted(set(self) - SIZES))
        raise UserError(f"--best-checkpoint-metric {name} is not measured: take {known}")


def measured(get_valid_stats: Callable) -> Callable:
    """Say what is measured if the best is to be kept by something else."""

    @wraps(get_valid_stats)
    def wrapper(cfg: Any, trainer: Any, stats: dict[str, Any], *args: Any) -> dict[str, Any]:
        return get_valid_stats(cfg, trainer, Measures(stats), *args)  # a task may add to them

    return wrapper


def checked(call_main: Callable) -> Callable:
    """Check the options before anything is built, and before processes are started."""

    @wraps(call_main)
    def wrapper(cfg: Any, main: Callable, **kwargs: Any) -> Any:
        check_options(cfg.checkpoint)
        return call_main(cfg, main, **kwargs)

    return wrapper
