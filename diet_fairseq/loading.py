"""Checkpoints are data: nothing in them is run, and what is wrong with one is said in words.

Two ways lead from a checkpoint to a running program. Its pickle can name any function: PyTorch's
``weights_only`` refuses all types but those listed here. And fairseq calls ``eval`` on strings of
the configuration: here they are literals or refused (see `evaluate`).
"""

import pickle
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed
from fairseq.models import BaseFairseqModel
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from .errors import UserError, user_error_behind
from .literals import literal
from .stand_in import StandIn

_new_array = np.empty(0).__reduce__()[0]

#: What fairseq's checkpoints hold besides tensors and plain containers, type by type.
CHECKPOINT_TYPES: list[Any] = [
    # The options of architectures, tasks and optimizers that still take argparse's namespace.
    Namespace,
    # Arrays: `--eval-bleu` sums n-gram counts in them, and the meters are saved.
    np.ndarray,
    np.dtype,
    type(np.dtype(np.int64)),
    type(np.dtype(np.float64)),
    # How an array's pickle begins, as numpy 2 and numpy 1 write it.
    (_new_array, "numpy._core.multiarray._reconstruct"),
    (_new_array, "numpy.core.multiarray._reconstruct"),
]

#: Where the strings of the configurations read so far came from: text to "key of file".
_origins: dict[str, str] = {}
#: The checkpoint read last, for errors that come up when its parameters are put to use.
_latest = "the checkpoint"


def read(file: Any, map_location: Any = None, **_: Any) -> Any:
    """What ``torch.load`` is to fairseq's checkpoint code: safe, whatever the environment says."""
    global _latest
    name = str(getattr(file, "name", file))
    try:
        state = _load(file, map_location, CHECKPOINT_TYPES)
    # Damage shows as errors of any kind, even as OSError from a place beyond the end of the file.
    except Exception as error:
        raise UserError(f"{name} {_fault(name, error)}") from error
    if not (isinstance(state, dict) and isinstance(state.get("model"), Mapping)):
        raise UserError(f"{name} is no fairseq checkpoint: it holds no model; give another file")
    args, cfg = state.get("args"), state.get("cfg")
    if not (isinstance(args, Namespace) or isinstance(cfg, dict)):
        raise UserError(
            f"{name} is no fairseq checkpoint: it holds no configuration; give another file"
        )
    for kind, config in (("args", args), ("cfg", cfg)):
        for key, text in _strings(config, kind):
            if "${" in text:
                # omegaconf would look up what is named there, the environment included, for the
                # sender to have it. fairseq writes configurations with everything looked up.
                raise UserError(
                    f"{name} is refused: {key} of its configuration is {text!r}, which asks to "
                    "look something up; use a checkpoint from a source that you trust"
                )
            _origins[text] = f"{key} in {name}"
    _latest = name
    return state


def _load(file: Any, map_location: Any, types: list[Any]) -> Any:
    """Load with ``types`` allowed for the time of this call: others keep their own list."""
    listed = torch.serialization.get_safe_globals()
    with torch.serialization.safe_globals([kind for kind in types if kind not in listed]):
        return torch.load(file, map_location=map_location, weights_only=True)


def _strings(config: Any, path: str) -> Iterator[tuple[str, str]]:
    """All strings of a configuration, keys included, with the place where each stands."""
    if isinstance(config, str):
        yield path, config
    elif isinstance(config, Namespace):
        yield from _strings(vars(config), path)
    elif isinstance(config, Mapping):
        for key, value in config.items():
            yield from _strings(key, path) if isinstance(key, str) else ()
            yield from _strings(value, f"{path}.{key}")
    elif isinstance(config, (list, tuple, set)):
        for value in config:
            yield from _strings(value, path)


def _fault(name: str, error: Exception) -> str:
    """What is wrong with the file ``name`` that raised ``error`` on loading, and what to do."""
    path = Path(name)
    if path.is_file() and path.stat().st_size == 0:
        return "is empty: give another checkpoint"
    found = re.search(r"\bGLOBAL (\S+)", str(error))
    if found:
        return (
            f"is refused: it holds {found[1]}, which no checkpoint needs and which could run a "
            "program; nothing of it was run; use a checkpoint from a source that you trust"
        )
    if isinstance(error, pickle.UnpicklingError) and "WeightsUnpickler error" in str(error):
        reason = str(error).split("WeightsUnpickler error:")[1].strip().splitlines()[0]
        return f"is refused: it is no checkpoint or a tampered one ({reason}); give another file"
    return "is no checkpoint, or is cut off or damaged: give another, or train again"


def evaluate(text: str, *_: Any) -> Any:
    """What ``eval`` is to all of fairseq's modules: reads literals, runs nothing."""
    try:
        return literal(text)
    except ValueError:
        origin = _origins.get(text, "an option's value")
        raise UserError(
            f"{origin} is {text!r}, which fairseq would run as a program; nothing of it was run; "
            "write a Python literal such as [1, 2] or {'beam': 5}, and use checkpoints from a "
            "source that you trust"
        ) from None


def _told(load_model_ensemble_and_task: Callable) -> Callable:
    """Say in words that a checkpoint is not there."""

    @wraps(load_model_ensemble_and_task)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return load_model_ensemble_and_task(*args, **kwargs)
        except OSError as error:
            found = re.fullmatch("Model file not found: (.*)", str(error))
            if found:
                raise UserError(f"there is no checkpoint {found[1]}: check --path") from error
            raise

    return wrapper


def _compared(load_state_dict: Callable) -> Callable:
    """Say in words where a checkpoint and the model differ; torch's list can be pages long."""

    @wraps(load_state_dict)
    def wrapper(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return load_state_dict(self, state_dict, *args, **kwargs)
        except RuntimeError as error:
            difference = _difference(state_dict, self.state_dict())
            if not difference:
                raise
            raise UserError(
                f"{_latest} does not fit the model: {difference}; give the --arch, sizes and "
                "dictionaries it was trained with, or another checkpoint or --save-dir"
            ) from error

    return wrapper


def _difference(checkpoint: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """The parameters that differ, the first by name, the others counted."""

    def shape(tensor: Any) -> str:
        return " x ".join(map(str, tensor.shape)) or "a number"

    def listed(names: list[str], what: str) -> list[str]:
        others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        return [f"{names[0]}{others} {what}"] if names else []

    both = checkpoint.keys() & model.keys()
    unlike = [n for n in model if n in both and checkpoint[n].shape != model[n].shape]
    sizes = [f"{shape(checkpoint[n])} there and {shape(model[n])} here" for n in unlike[:1]]
    return ", ".join(
        listed(unlike, "is " + "".join(sizes))
        + listed([n for n in model if n not in both], "is not in the checkpoint")
        + listed([n for n in checkpoint if n not in both], "is not in the model")
    )


def _restored(load_checkpoint: Callable) -> Callable:
    """Raise the user's mistake that fairseq's trainer wraps up, or asserts."""

    @wraps(load_checkpoint)
    def wrapper(self: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return load_checkpoint(self, filename, *args, **kwargs)
        except AssertionError as error:
            raise UserError(f"{filename} can't be resumed from: {error}") from error
        except Exception as error:
            mistake = user_error_behind(error)
            raise mistake or error from None

    return wrapper


def _plainly(broadcast_object: Callable) -> Callable:
    """Broadcast a checkpoint with its configuration as plain containers, which may be loaded."""

    @wraps(broadcast_object)
    def wrapper(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(obj, dict) and OmegaConf.is_config(obj.get("cfg")):
            obj = {**obj, "cfg": OmegaConf.to_container(obj["cfg"], enum_to_str=True)}
        return broadcast_object(obj, *args, **kwargs)

    return wrapper


def _read_broadcast(file: Any, map_location: Any = None) -> Any:
    """What ``torch.load`` is to a process that receives what another one broadcasts."""
    return _load(file, map_location, [*CHECKPOINT_TYPES, distributed._TensorPlaceholder])


def apply() -> None:
    """Make all of fairseq's checkpoint loading safe. A second call changes nothing."""
    # Modules that are imported later, such as a second command, are covered by a second call.
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("fairseq", "fairseq_cli") and hasattr(module, "__file__"):
            module.eval = evaluate  # type: ignore[attr-defined]
    if isinstance(checkpoint_utils.torch, StandIn):
        return
    # Can go when fairseq passes `weights_only` and its checkpoints hold plain containers only.
    checkpoint_utils.torch = StandIn(torch, load=read)
    # Can go when fairseq says what is wrong itself.
    checkpoint_utils.load_model_ensemble_and_task = _told(
        checkpoint_utils.load_model_ensemble_and_task
    )
    BaseFairseqModel.load_state_dict = _compared(BaseFairseqModel.load_state_dict)
    Trainer.load_checkpoint = _restored(Trainer.load_checkpoint)
    # Can go when fairseq's broadcast can be read by ranks other than the first.
    distributed.torch = StandIn(torch, load=_read_broadcast)
    distributed.broadcast_object = _plainly(distributed.broadcast_object)
