"""``export safetensors``: the parameters by their names, and what it takes to read them.

``model.safetensors`` has the state dict as it is, in the checkpoint's precision. Parameters that
are one tensor under several names are there once, as the format demands; the others' names are its
metadata: ``tied`` is a JSON object {name: the name that is there}.
"""

import json
import math
from argparse import ArgumentParser, Namespace
from enum import Enum
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from safetensors.torch import save_file
from torch import Tensor

from ..atomic import written
from ..patches import loading
from ..version import __version__
from . import checkpoint, folder


def add_arguments(parser: ArgumentParser) -> None:
    checkpoint.add_arguments(parser)


def run(args: Namespace) -> None:
    folder.check(args.out, args.force)
    trained = checkpoint.trained(args.checkpoint, args.data)
    state = loading.read(str(args.checkpoint), "cpu")["model"]
    kept, tied = untied(state)
    with folder.written(args.out, args.force) as new:
        metadata = {"format": "pt", "diet_fairseq": __version__, "tied": json.dumps(tied)}
        save_file(kept, new / "model.safetensors", metadata)
        with written(new / "config.json") as file:
            json.dump(plain(trained.config), file, indent=1, sort_keys=True)
            file.write("\n")
        for words, name in dictionaries(trained):
            words.save(str(new / name))
    numbers = sum(tensor.numel() for tensor in kept.values())
    print(f"wrote {args.out}: {len(kept)} tensors of {numbers:,} numbers")


def untied(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, each once; and under which name those are that another name has, too."""
    kept: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    places: dict[tuple[Any, ...], str] = {}
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        first = places.setdefault(place, name) if tensor.numel() else name
        if first == name:
            kept[name] = tensor.clone().contiguous()
        else:
            tied[name] = first
    return kept, tied


def plain(config: Any) -> dict[str, Any]:
    """fairseq's options of the model, by the names that its commands have, as JSON knows them."""
    options = (
        OmegaConf.to_container(config, resolve=True, enum_to_str=True)
        if isinstance(config, DictConfig)
        else vars(config)
    )
    return {name: value for name, value in options.items() if is_plain(value)}


def is_plain(value: Any) -> bool:
    """Whether JSON holds the value; fairseq's arguments also have the odd object."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Enum):
        return False
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(part) for key, part in value.items())
    return value is None or isinstance(value, (bool, int, str))


def dictionaries(trained: checkpoint.Trained) -> list[tuple[Any, str]]:
    """The model's, and what fairseq calls their files."""
    if trained.is_encoder:
        return [(trained.model.encoder.dictionary, "dict.txt")]
    task, model = trained.task.cfg, trained.model
    return [
        (model.encoder.dictionary, f"dict.{task.source_lang}.txt"),
        (model.decoder.dictionary, f"dict.{task.target_lang}.txt"),
    ]
