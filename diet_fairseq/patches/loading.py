"""fairseq reads checkpoints with `checkpoints`, and broadcasts them as plain data."""

import logging
import os
from argparse import Namespace
from collections.abc import Callable, Collection
from functools import partial
from inspect import signature
from typing import Any

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed
from fairseq.file_io import PathManager
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from omegaconf import OmegaConf

from ..checkpoints import configuration
from ..checkpoints.file import TRUST, check_regular, load, read
from ..checkpoints.plain import shorten
from ..errors import UserError
from ..models import warm_start
from . import sharding
from .patch import Proxy, intercepts, replaces
from .processes import spawn_processes

logger = logging.getLogger(__name__)


@replaces(
    "fairseq.checkpoint_utils:torch",
    safety="a checkpoint can run any program, and names files that fairseq opens or downloads",
    compatibility="PyTorch 2.6: fairseq's own checkpoints, which hold options as "
    "argparse.Namespace, don't load",
)
def load_safely(torch: Any) -> Any:
    def read_without_files(file: Any, map_location: Any = None, **_: Any) -> dict[str, Any]:
        state = read(file, map_location)
        for kind in ("args", "cfg"):
            if isinstance(state.get(kind), (dict, Namespace)):
                state[kind], removed = configuration.without_files(state[kind])
                if removed:
                    logger.info("not reading files that the checkpoint names: %s", removed)
        if isinstance(state.get("args"), Namespace):  # fairseq looks the architecture up in them
            arch = getattr(state["args"], "arch", None)
            if warm_start.is_warm_start() and arch not in ARCH_MODEL_REGISTRY:
                state["args"].arch = "transformer"  # only the parameters are used
            else:
                check_registered("architecture", arch, ARCH_MODEL_REGISTRY | MODEL_REGISTRY)
        return state

    return Proxy(torch, load=read_without_files)


@intercepts(
    "fairseq.checkpoint_utils:load_checkpoint_to_cpu",
    safety="a pipe or a device is opened like a checkpoint",
    plugin="a run or a warm start loads position parameters that have another meaning in its model",
)
def check_checkpoint(load_checkpoint_to_cpu: Callable, path: str, *args: Any, **kwargs: Any) -> Any:
    check_regular(path)
    state = load_checkpoint_to_cpu(path, *args, **kwargs)
    warm_start.compare_descriptions(path, state, configuration.adds_mask(state))
    return state


@intercepts(
    "fairseq.checkpoint_utils:load_model_ensemble_and_task",
    safety="a small checkpoint can request a model that fills the memory",
)
def bound_model_size(load_model_ensemble_and_task: Callable, *args: Any, **kwargs: Any) -> Any:
    call = signature(load_model_ensemble_and_task).bind(*args, **kwargs)
    call.apply_defaults()
    paths, suffix, shards = (call.arguments[n] for n in ("filenames", "suffix", "num_shards"))
    add_shard = checkpoint_utils.get_maybe_sharded_checkpoint_filename
    names = (add_shard(path, suffix, i, shards) for path in paths for i in range(shards))
    files = filter(os.path.isfile, map(PathManager.get_local_path, names))
    try:
        with configuration.no_larger_than(sum(map(os.path.getsize, files))):
            return load_model_ensemble_and_task(*args, **kwargs)
    except configuration.Refused as error:
        raise UserError(f"{', '.join(paths)} is refused: {error}; {TRUST}") from None


UNKNOWN_NAME = (
    "a checkpoint of a user's own architecture or task that is loaded without --user-dir ends in "
    "an error that names neither"
)


@intercepts("fairseq.models:build_model", plugin=UNKNOWN_NAME)
def check_known_architecture(build_model: Callable, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
    check_registered("architecture", name, ARCH_MODEL_REGISTRY | MODEL_REGISTRY)
    return build_model(cfg, *args, **kwargs)


@intercepts(
    "fairseq.tasks:setup_task",
    plugin=f"{UNKNOWN_NAME}; {sharding.FLAG}: the training program asks for fairscale",
)
def check_task(setup_task: Callable, cfg: Any, **kwargs: Any) -> Any:
    check_registered("task", getattr(cfg, "_name", None), TASK_REGISTRY)
    sharding.replace_fairscale()
    return setup_task(cfg, **kwargs)


def check_registered(kind: str, name: Any, registry: Collection[str]) -> None:
    """Refuse a name that nothing has registered; without a name fairseq looks elsewhere.

    Raises:
        UserError: the name is not in the registry
    """
    if isinstance(name, str) and name not in registry:
        raise UserError(
            f"the {kind} {shorten(name)} is unknown: give --user-dir, the package that registers it"
        )


@intercepts(
    "fairseq.trainer:Trainer.load_checkpoint",
    safety="a pipe, a device or a folder with the name of a checkpoint is silently ignored",
    plugin="a model that loads a checkpoint can't tell --finetune-from-model from a resumed run",
)
def load_for_model(
    load_checkpoint: Callable, self: Any, filename: str, *args: Any, **kwargs: Any
) -> Any:
    check_regular(filename)
    starts = filename == self.cfg.checkpoint.finetune_from_model
    with warm_start.checkpoint_loading(self.get_model(), starts):
        return load_checkpoint(self, filename, *args, **kwargs)


BROADCAST = (
    "PyTorch 2.6: a run on several processes can't be resumed, because weights_only refuses the "
    "broadcast"
)


@intercepts("fairseq.distributed.utils:broadcast_object", compatibility=BROADCAST)
def broadcast_plain_data(broadcast_object: Callable, obj: Any, *args: Any, **kwargs: Any) -> Any:
    """Send a checkpoint's configuration as plain containers instead of omegaconf's."""
    if isinstance(obj, dict) and OmegaConf.is_config(obj.get("cfg")):
        obj = {**obj, "cfg": OmegaConf.to_container(obj["cfg"], enum_to_str=True)}
    received = broadcast_object(obj, *args, **kwargs)
    if obj is None and isinstance(received, dict) and "cfg" in received:
        # only the sender has read the file
        warm_start.record_description(received, configuration.adds_mask(received))
    return received


@replaces(
    "fairseq.distributed.utils:torch",
    compatibility=f"{BROADCAST}; without a CUDA device, such a run succeeds and trains nothing",
)
def load_broadcasts(torch: Any) -> Any:
    def load_broadcast(file: Any, map_location: Any = None) -> Any:
        # a placeholder of a tensor names the device
        return load(file, map_location, (distributed._TensorPlaceholder, torch.device))

    spawn = partial(spawn_processes, torch.multiprocessing.spawn)
    return Proxy(
        torch, load=load_broadcast, multiprocessing=Proxy(torch.multiprocessing, spawn=spawn)
    )
