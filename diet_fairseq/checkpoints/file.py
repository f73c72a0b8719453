"""Reading of checkpoint files: content is never executed, and faulty files raise a clear error."""

import os
import pickle
import re
import tarfile
import threading
import warnings
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, BinaryIO

import torch
from torch.serialization import MAGIC_NUMBER, PROTOCOL_VERSION

from .. import files
from ..errors import UserError
from . import configuration
from .archive import locate_records
from .dry_run import PLAIN_OPERATIONS, DryRun
from .pickled_objects import TensorBuilder, checkpoint_names, only_names
from .plain import Refused, copy_plain_data, describe_error, shorten

TRUST = "use a checkpoint from a source that you trust"
#: largest number of copies of a file's content that loading may make
MOST_COPIES = 20
ADVICE = "give a checkpoint, such as checkpoint_best.pt"
#: lock while a file is read, because all threads share PyTorch's list of allowed names
_LOADING_LOCK = threading.RLock()


@contextmanager
def report_faults(path: Any) -> Iterator[None]:
    """A context in which one of our commands builds a checkpoint's model.

    Raises:
        UserError: the checkpoint has a fault, or a file that it needs is missing
    """
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(
            f"{path} needs {shorten(str(error.filename or error))}, which does not exist: give "
            "--data, the folder that fairseq-preprocess wrote for this checkpoint"
        ) from error
    except Exception as error:
        if _is_out_of_memory(error):
            raise
        raise UserError(
            f"{path} holds a model that can't be built ({describe_error(error)}): give another "
            "checkpoint"
        ) from error


def check_regular(path: Any) -> None:
    """Refuse a checkpoint that is a folder, a pipe or a device."""
    if os.path.lexists(path):
        files.check_regular(path, advice=ADVICE)


def read(file: Any, map_location: Any = None) -> dict[str, Any]:
    """A checkpoint's state: plain data and dense tensors, with its configuration checked.

    Args:
        file: a path, or an open file

    Raises:
        UserError: the file has a fault; none of its content was executed
    """
    name = _file_name(file)
    state = load(file, map_location)
    model = state.get("model") if isinstance(state, dict) else None
    if not isinstance(model, Mapping):
        raise UserError(f"{name} is not a fairseq checkpoint: it holds no model; give another file")
    args, cfg = state.get("args"), state.get("cfg")
    if not (isinstance(args, Namespace) or isinstance(cfg, dict)):
        raise UserError(
            f"{name} is not a fairseq checkpoint: it holds no configuration; give another file"
        )
    for key, value in model.items():
        if not (isinstance(key, str) and isinstance(value, torch.Tensor)):
            raise UserError(
                f"{name} is refused: {shorten(str(key))} of its model is not a tensor; give "
                "another file"
            )
    try:
        configuration.check(args, cfg)
    except Refused as error:
        raise UserError(f"{name} is refused: {error}; {TRUST}") from None
    return state


def load(file: Any, map_location: Any = None, other_types: tuple[type, ...] = ()) -> Any:
    """The content of any file of torch.save with only `CHECKPOINT_NAMES` and ``other_types``.

    Raises:
        UserError: the file can't be read, is damaged, or holds anything else
    """
    name = _file_name(file)
    user_types = tuple(
        kind for kind in torch.serialization.get_safe_globals() if isinstance(kind, type)
    )
    try:
        with _LOADING_LOCK, warnings.catch_warnings(), _open(file) as opened:
            warnings.simplefilter("ignore")
            size = _find_size(opened)
            is_archive = torch.serialization._is_zipfile(opened)
            names = checkpoint_names(TensorBuilder(size, is_archive), other_types)
            _check_content(opened, size, names)
            with only_names(names):
                state = torch.load(opened, map_location, weights_only=True, mmap=False)
            return copy_plain_data(state, (*other_types, *user_types), size)
    except Refused as error:
        raise UserError(f"{name} is refused: {error}; {TRUST}") from None
    except UserError:
        raise
    # Damage raises errors of any kind, even OSError for a place beyond the end of the file.
    except Exception as error:
        raise UserError(f"{name} {_describe_fault(error)}") from error


def _open(file: Any) -> AbstractContextManager[BinaryIO]:
    """The file, opened once, so that PyTorch reads the file that was checked."""
    return nullcontext(file) if hasattr(file, "read") else files.open_regular(file, advice=ADVICE)


def _find_size(file: BinaryIO) -> int:
    """The size of an open file in bytes."""
    start = file.tell()
    try:
        return file.seek(0, os.SEEK_END)
    finally:
        file.seek(start)


def _check_content(file: BinaryIO, size: int, names: dict[str, Any]) -> None:
    """Refuse a file whose content is not safe to load."""
    start = file.tell()
    try:
        if torch.serialization._is_zipfile(file):
            records = locate_records(file)
            file.seek(start)
            with torch.serialization._open_zipfile_reader(file) as reader:
                content = reader.get_record("data.pkl")
            DryRun(names, MOST_COPIES * size, records, size).check(content)
        else:
            _check_old_content(file, DryRun(names, MOST_COPIES * size, None, size))
    finally:
        file.seek(start)


def _check_old_content(file: BinaryIO, dry_run: DryRun) -> None:
    """Refuse a file that is not of PyTorch before 1.6: five pickles, and the storages."""
    start = file.tell()
    with suppress(tarfile.HeaderError):  # PyTorch would read it as one of its first formats
        tarfile.TarInfo.frombuf(file.read(tarfile.BLOCKSIZE), "utf-8", "surrogateescape")
        raise Refused("it is a tar archive")
    file.seek(start)
    for number in (MAGIC_NUMBER, PROTOCOL_VERSION):
        if dry_run.check(file, PLAIN_OPERATIONS).content != number:
            raise pickle.UnpicklingError("damaged (it does not begin as PyTorch's files)")
    dry_run.check(file, PLAIN_OPERATIONS)  # the system that wrote the file
    dry_run.check(file)
    dry_run.check(file, PLAIN_OPERATIONS)  # the keys of the storages


def _file_name(file: Any) -> str:
    """The path of a file for messages; a file in memory has none."""
    return str(getattr(file, "name", "a checkpoint")) if hasattr(file, "read") else str(file)


def _describe_fault(error: Exception) -> str:
    """The fault of a file that raised ``error``, and the advice for it."""
    if _is_out_of_memory(error):  # a damaged file may claim any size
        return "needs more memory than there is: free some, or, if the file is small, give another"
    text = str(error)
    if match := re.search(r"\bGLOBAL (\S+)", text):
        return (
            f"is refused: it holds {shorten(match[1])}, which no checkpoint needs and which could "
            f"run a program; nothing of it was run; {TRUST}"
        )
    if isinstance(error, pickle.UnpicklingError) and "WeightsUnpickler error" in text:
        fault = text.split("WeightsUnpickler error:")[1].strip().splitlines()[0]
        return (
            "is refused: it is not a checkpoint, or was tampered with "
            f"({shorten(fault)}); give another file"
        )
    return "is not a checkpoint, or is truncated or damaged: give another, or train again"


def _is_out_of_memory(error: Exception) -> bool:
    texts = ("out of memory", "can't allocate memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
    )
