"""Reading a checkpoint: nothing in it is executed, and a faulty one gives a clear error."""

import os
import pickle
import re
import threading
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from .. import input_files
from ..errors import UserError
from ..modes import VARIABLE, active_kinds
from . import arrays, configuration
from .plain import Odd, plain, reason, shown

#: What fairseq's checkpoints hold besides tensors and plain containers, type by type: the options
#: of architectures, tasks and optimizers that still take argparse's namespace, and the arrays in
#: which `--eval-bleu` sums n-gram counts for the meters.
CHECKPOINT_TYPES: list[Any] = [Namespace, *arrays.TYPES]
TRUST = "use a checkpoint from a source that you trust"
#: held while a file is read: what torch.load lets through is said once for all threads
READING = threading.RLock()


def check_protection() -> None:
    """Refuse to read checkpoints where no change of the kind safety is made.

    Raises:
        UserError: DIET_FAIRSEQ_PATCHES is off
    """
    if "safety" not in active_kinds():
        raise UserError(
            f"{VARIABLE} is off, and checkpoints are not read without its protection: leave it "
            "out, or set it to no-data"
        )


@contextmanager
def report_faults(path: Any) -> Iterator[None]:
    """Within this context, the model of a checkpoint is built for a command of ours.

    Raises:
        UserError: it has a fault, or a file that it needs is missing; see also `check_protection`
    """
    check_protection()
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(
            f"there is no file {shown(str(error.filename or error))}, which {path} needs: give by "
            "--data the folder that fairseq-preprocess wrote for it"
        ) from error
    except Exception as error:
        if lacks_memory(error):
            raise
        raise UserError(
            f"{path} holds a model that can't be built ({reason(error)}): give another checkpoint"
        ) from error


def check_regular(path: Any) -> None:
    """Refuse a folder, a pipe or a device in the place of a checkpoint."""
    if os.path.lexists(path):
        input_files.check_regular(path, advice="give a checkpoint, such as checkpoint_best.pt")


def read(file: Any, map_location: Any = None, **_: Any) -> dict[str, Any]:
    """A checkpoint's state, of plain data and dense tensors, with its configuration checked.

    ``file`` is open or a path. Whatever the environment says, nothing in it is run. Every fault
    is a `UserError`.
    """
    name = _name_of(file)
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
                f"{name} is refused: {shown(str(key))} of its model is not a tensor; give another "
                "file"
            )
    try:
        configuration.check(args, cfg)
    except configuration.Refused as error:
        raise UserError(f"{name} is refused: {error}; {TRUST}") from None
    return state


def load(file: Any, map_location: Any = None, others: tuple[type, ...] = ()) -> Any:
    """The content of a file, checkpoint or not; ``others`` are further types to let through."""
    check_protection()
    name = _name_of(file)
    if not hasattr(file, "read"):
        check_regular(file)
    try:
        with (
            READING,
            _allowed([*CHECKPOINT_TYPES, *others]) as theirs,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            _check_archive(file)
            state = torch.load(file, map_location=map_location, weights_only=True)
            return plain(state, (*others, *theirs))
    except Odd as error:
        raise UserError(f"{name} is refused: {error}; {TRUST}") from None
    except UserError as error:  # of opening the file
        if not isinstance(error.__cause__, OSError):
            raise
        raise UserError(f"{name} {_fault(name, error.__cause__)}") from error
    # Damage shows as errors of any kind, even as OSError from a place beyond the end of the file.
    except Exception as error:
        raise UserError(f"{name} {_fault(name, error)}") from error


def _check_archive(file: Any) -> None:
    """Refuse an archive that unpacks to more than it is: torch.save never compresses."""
    with nullcontext(file) if hasattr(file, "read") else input_files.open_regular(file) as archive:
        start = archive.tell()
        try:
            size = archive.seek(0, os.SEEK_END)
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as entries:
                    if sum(entry.file_size for entry in entries.infolist()) > size:
                        raise Odd("unpacks to more than its size")
        finally:
            archive.seek(start)


def _name_of(file: Any) -> str:
    """A path's or an open file's; what lies in memory has none."""
    return str(getattr(file, "name", "a checkpoint")) if hasattr(file, "read") else str(file)


@contextmanager
def _allowed(types: list[Any]) -> Iterator[list[type]]:
    """While this lasts, ``types`` are allowed, and so is what the user allowed: those are yielded.

    Ours come before theirs: a name that both allow would mean one or the other, as chance has it.
    """

    def name_of(kind: Any) -> str:
        return kind[1] if isinstance(kind, tuple) else f"{kind.__module__}.{kind.__qualname__}"

    before = torch.serialization.get_safe_globals()
    ours = {name_of(kind) for kind in types}
    theirs = [kind for kind in before if name_of(kind) not in ours]
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([*types, *theirs])
    try:
        yield [kind for kind in theirs if isinstance(kind, type)]
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def _fault(name: str, error: Exception) -> str:
    """What is wrong with the file ``name`` that raised ``error`` on loading, and what to do."""
    path = Path(name)
    if isinstance(error, FileNotFoundError):
        return "is not there: check the path"
    if path.is_file() and path.stat().st_size == 0:
        return "is empty: give another checkpoint"
    if isinstance(error, PermissionError):
        return "can't be read: fix its permissions, or name another"
    if lacks_memory(error):  # what a damaged file says of its sizes may be anything
        return "asks for more memory than there is: free some, or, if it is small, give another"
    found = re.search(r"\bGLOBAL (\S+)", str(error))
    if found:
        return (
            f"is refused: it holds {shown(found[1])}, which no checkpoint needs and which could "
            f"run a program; nothing of it was run; {TRUST}"
        )
    if isinstance(error, pickle.UnpicklingError) and "WeightsUnpickler error" in str(error):
        fault = str(error).split("WeightsUnpickler error:")[1].strip().splitlines()[0]
        return (
            "is refused: it is not a checkpoint, or was tampered with "
            f"({shown(fault)}); give another file"
        )
    return "is not a checkpoint, or is truncated or damaged: give another, or train again"


def lacks_memory(error: BaseException) -> bool:
    """Whether memory ran out, that of a GPU included."""
    text = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and ("out of memory" in text or "can't allocate memory" in text)
    )
