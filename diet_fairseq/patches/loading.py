"""fairseq reads checkpoints as `checkpoints` does, and broadcasts them as plain data."""

import logging
import os
from argparse import Namespace
from collections.abc import Callable
from functools import wraps
from typing import Any

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed
from fairseq.file_io import PathManager
from omegaconf import OmegaConf

from ..checkpoints import configuration, progress
from ..checkpoints.file import TRUST, check_regular, load, read
from ..errors import UserError
from ..stack import warm_start
from . import position_options
from .patch import ModuleView

logger = logging.getLogger(__name__)


def with_safe_load(torch: Any) -> Any:
    """``torch`` for fairseq's checkpoint code, whose ``load`` is safe."""

    def read_without_files(file: Any, map_location: Any = None, **_: Any) -> dict[str, Any]:
        state = read(file, map_location)
        for kind in ("args", "cfg"):
            if isinstance(state.get(kind), (dict, Namespace)):
                state[kind], removed = configuration.without_files(state[kind])
                if removed:
                    logger.info("files that a checkpoint names are not read: %s", removed)
        return state

    return ModuleView(torch, load=read_without_files)


def check_checkpoint(load_checkpoint_to_cpu: Callable) -> Callable:
    """``load_checkpoint_to_cpu`` of a regular file, whose counts and options are checked."""

    @wraps(load_checkpoint_to_cpu)
    def wrapper(path: str, *args: Any, **kwargs: Any) -> Any:
        check_regular(path)
        state = load_checkpoint_to_cpu(path, *args, **kwargs)
        try:
            progress.check(state)
        except configuration.Refused as error:
            raise UserError(f"{path} is refused: {error}; {TRUST}") from None
        position_options.compare(path, state)
        warm_start.add_description(state)
        return state

    return wrapper


def bound_model_size(load_model_ensemble_and_task: Callable) -> Callable:
    """``load_model_ensemble_and_task`` that builds no larger models than its files can hold."""

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
        size = sum(
            _size(checkpoint_utils.get_maybe_sharded_checkpoint_filename(name, suffix, shard,
                                                                         num_shards))
            for name in filenames
            for shard in range(num_shards)
        )  # fmt: skip
        try:
            with configuration.no_larger_than(size):
                return load_model_ensemble_and_task(
                    filenames, arg_overrides, task, strict, suffix, num_shards, state
                )
        except configuration.Refused as error:
            raise UserError(f"{', '.join(filenames)} is refused: {error}; {TRUST}") from None

    return wrapper


def _size(path: str) -> int:
    """Bytes of a file; 0 where there is none."""
    local = PathManager.get_local_path(path)
    return os.path.getsize(local) if os.path.isfile(local) else 0


def broadcast_plain_data(broadcast_object: Callable) -> Callable:
    """``broadcast_object`` with a checkpoint's configuration as plain containers.

    PyTorch's ``weights_only`` refuses omegaconf's types.
    """

    @wraps(broadcast_object)
    def wrapper(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(obj, dict) and OmegaConf.is_config(obj.get("cfg")):
            obj = {**obj, "cfg": OmegaConf.to_container(obj["cfg"], enum_to_str=True)}
        return broadcast_object(obj, *args, **kwargs)

    return wrapper


def with_broadcast_load(torch: Any) -> Any:
    """``torch`` for a process that receives a broadcast object, whose ``load`` knows its types."""

    def load_broadcast(file: Any, map_location: Any = None) -> Any:
        return load(file, map_location, (distributed._TensorPlaceholder,))

    return ModuleView(torch, load=load_broadcast)
