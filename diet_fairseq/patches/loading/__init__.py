"""Checkpoints are data: nothing in them is executed, and a faulty one gives a clear error.

A hostile checkpoint can act in three ways. Its pickle can name any function:
PyTorch's ``weights_only`` refuses all types but those of `file.CHECKPOINT_TYPES`. fairseq calls
``eval`` on strings of the configuration: here they are literals or refused (`evaluate`). And the
configuration names what fairseq would look up, open or download (`configuration`).

This file makes fairseq use the others.
"""

import logging
import os
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed
from fairseq.file_io import PathManager
from omegaconf import OmegaConf

from ...errors import UserError, chain, rephrased
from ...literals import literal
from ..explaining import mistake_behind
from . import average, configuration, options, progress
from .configuration import Refused, converted
from .file import CHECKPOINT_TYPES, TRUST, check_regular, lacks_memory, load, read
from .model import difference, no_larger_than
from .plain import quoted, reason, shown

__all__ = [
    "CHECKPOINT_TYPES",
    "average",
    "built_bpe",
    "built_tokenizer",
    "check_regular",
    "converted",
    "evaluate",
    "one_by_one",
    "options",
    "plainly",
    "read",
    "read_any",
    "read_broadcast",
    "read_without_files",
    "restored",
    "to_cpu",
]

logger = logging.getLogger(__name__)

UNUSABLE = "can't be resumed from"


class NotALiteral(UserError):
    """Text that fairseq would have run."""

    def __init__(self, text: str, place: str = "an option's value") -> None:
        super().__init__(
            f"{place} is {quoted(text)}, which fairseq would run as a program; nothing of it was "
            "run; write a Python literal such as [1, 2] or {'beam': 5}, and use checkpoints from a "
            "source that you trust"
        )
        self.text = text


def evaluate(text: str, *_: Any) -> Any:
    """Replaces ``eval`` in all of fairseq's modules: reads literals, executes nothing."""
    try:
        return literal(text)
    except ValueError:
        raise NotALiteral(text) from None


def _about(path: str, what: str) -> AbstractContextManager[None]:
    """Raise errors over the checkpoint ``path`` as a `UserError` that names it.

    A faulty checkpoint can raise any exception: fairseq checks few of the things that can be wrong.
    """

    def say(error: Exception) -> str | None:
        refusal = next((cause for cause in chain(error) if isinstance(cause, Refused)), None)
        if refusal is not None:
            return f"{path} is refused: {refusal}; {TRUST}"
        unlike = difference(error)
        if unlike is not None:
            return (
                f"{path} does not fit the model: {unlike}; give the --arch, sizes and dictionaries "
                "it was trained with, or another checkpoint or --save-dir"
            )
        if mistake_behind(error) is not None:  # `explaining` has better words
            return None
        logger.debug("%s: %s", path, what, exc_info=True)
        return f"{path} {what} ({reason(error)}): give another checkpoint"

    return rephrased(say)


def read_without_files(file: Any, map_location: Any = None, **_: Any) -> dict[str, Any]:
    """Replaces ``torch.load`` in fairseq's checkpoint code."""
    state = read(file, map_location)
    for kind in ("args", "cfg"):
        if isinstance(state.get(kind), (dict, Namespace)):
            state[kind], left_out = configuration.without_files(state[kind])
            if left_out:
                logger.info("files that a checkpoint names are not read: %s", ", ".join(left_out))
    return state


def to_cpu(load_checkpoint_to_cpu: Callable) -> Callable:
    @wraps(load_checkpoint_to_cpu)
    def wrapper(path: str, *args: Any, **kwargs: Any) -> Any:
        check_regular(path)
        with _about(path, "is not a checkpoint, or is damaged"):
            state = load_checkpoint_to_cpu(path, *args, **kwargs)
            configuration.check_names(state["cfg"])
            progress.check(state)
            return state

    return wrapper


def one_by_one(load_model_ensemble_and_task: Callable) -> Callable:
    """Load models one by one, so that an error names the file it is about."""

    @wraps(load_model_ensemble_and_task)
    def wrapper(
        filenames: list[str],
        arg_overrides: Any = None,
        task: Any = None,
        strict: bool = True,
        suffix: str = "",
        num_shards: int = 1,
        state: Any = None,
    ) -> Any:
        models: list[Any] = []
        cfg = None
        for name in filenames:
            path = checkpoint_utils.get_maybe_sharded_checkpoint_filename(
                name, suffix, 0, num_shards
            )
            if not PathManager.exists(path):
                raise UserError(f"there is no checkpoint {path}: check --path")
            check_regular(path)
            try:
                size = os.path.getsize(PathManager.get_local_path(path)) * num_shards
                with _about(path, "holds a model that can't be built"), no_larger_than(size):
                    more, cfg, task = load_model_ensemble_and_task(
                        [name], arg_overrides, task, strict, suffix, num_shards, state
                    )
            except NotALiteral as error:
                raise _placed(error, path) from None
            models += more
        return models, cfg, task

    return wrapper


def _placed(error: NotALiteral, path: str) -> NotALiteral:
    """The same, with the place in the configuration of the checkpoint ``path``."""
    state = read(path, "cpu")
    for place, value in configuration.values(state.get("args"), state.get("cfg")):
        if isinstance(value, str) and value == error.text:
            return NotALiteral(error.text, f"{place} in {path}")
    return error


def restored(load_checkpoint: Callable) -> Callable:
    """Resume from regular files only, and say why one can't be resumed from."""

    @wraps(load_checkpoint)
    def wrapper(
        self: Any, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        check_regular(filename)
        with _about(filename, UNUSABLE):
            try:
                extra = load_checkpoint(self, filename, reset_optimizer, *args, **kwargs)
            except AssertionError as error:  # fairseq's own words for what differs
                raise UserError(
                    f"{filename} can't be resumed from: {shown(str(error), 500)}"
                ) from error
        if extra is not None and not reset_optimizer:
            _watch_first_step(self.optimizer, filename)
            if not self.get_num_updates() and _updates(self):
                logger.warning(
                    f"{filename} has no state of an optimizer (--no-save-optimizer-state, or an "
                    f"average): updates, of which it has {_updates(self):,}, and the learning "
                    "rate's schedule begin anew; --reset-optimizer says that this is meant"
                )
        return extra

    return wrapper


def _updates(trainer: Any) -> int:
    """How many the checkpoint that was loaded had made."""
    history = trainer._optim_history
    return int(history[-1].get("num_updates", 0)) if history else 0


def _watch_first_step(optimizer: Any, path: str) -> None:
    """Blame the checkpoint for an error in the first step after its optimizer's state was loaded.

    PyTorch loads this state unchecked, and what it has to hold only the optimizer's step knows.
    """
    step = optimizer.step

    def first(*args: Any, **kwargs: Any) -> Any:
        vars(optimizer).pop("step", None)
        try:
            return step(*args, **kwargs)
        except Exception as error:
            if lacks_memory(error):  # which fairseq has an answer to
                raise
            with _about(path, UNUSABLE):
                raise

    optimizer.step = first


def plainly(broadcast_object: Callable) -> Callable:
    """Broadcast a checkpoint with its configuration as plain containers, which are safe to load."""

    @wraps(broadcast_object)
    def wrapper(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(obj, dict) and OmegaConf.is_config(obj.get("cfg")):
            obj = {**obj, "cfg": OmegaConf.to_container(obj["cfg"], enum_to_str=True)}
        return broadcast_object(obj, *args, **kwargs)

    return wrapper


def read_broadcast(file: Any, map_location: Any = None) -> Any:
    """Replaces ``torch.load`` in a process that receives what another one broadcasts."""
    return load(file, map_location, (distributed._TensorPlaceholder,))


def read_any(file: Any, map_location: Any = None, **_: Any) -> Any:
    """Replaces ``torch.load`` in fairseq's other modules."""
    return load(file, map_location)


def built(build: Callable, option: str) -> Callable:
    """Say which tokenizer or subword model can't be read."""

    @wraps(build)
    def wrapper(cfg: Any, *args: Any, **kwargs: Any) -> Any:
        def say(error: Exception) -> str | None:
            if isinstance(error, ImportError):  # says which package is missing
                return None
            choice = getattr(cfg, "_name", None) or getattr(cfg, option, cfg)
            return mistake_behind(error) or (
                f"--{option} {choice} can't be set up ({reason(error)}): give the files that it "
                "needs"
            )

        with rephrased(say):
            return build(cfg, *args, **kwargs)

    return wrapper


built_bpe = partial(built, option="bpe")
built_tokenizer = partial(built, option="tokenizer")
