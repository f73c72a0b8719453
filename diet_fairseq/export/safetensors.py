"""``export safetensors``: the parameters by their names, and what it takes to read them.

``model.safetensors`` has the state dict in float32. A tensor that has several names is there once,
as the format demands; ``tied`` in its metadata is a JSON object {another name: the one there}.
"""

import json
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from safetensors.torch import save_file
from torch import Tensor

from ..atomic import written
from ..inference.model_files import DATA_HELP, NONE, Pieces, resolve_model
from ..version import __version__
from . import checkpoint, folder
from .checkpoint import Trained

#: what a model must know, and the options of its --arch don't tell
MORE = ("arch", "max_positions", "max_source_positions", "max_target_positions")


def add_arguments(parser: ArgumentParser) -> None:
    checkpoint.add_places(parser)
    parser.add_argument("--data", type=Path, metavar="DIR", help=DATA_HELP)


def run(args: Namespace) -> None:
    folder.check(args.out, args.force)
    pieces = Pieces(args.data, subwords=NONE)
    trained = checkpoint.trained(resolve_model(args.checkpoint, pieces, translates=False))
    kept, tied = untied(trained.model.state_dict())
    with folder.written(args.out, args.force) as new:
        with written(new / "config.json") as file:
            json.dump(configuration(trained), file, indent=1, sort_keys=True)
            file.write("\n")
        file_of_tensors = new / "model.safetensors"
        metadata = {"format": "pt", "diet_fairseq": __version__, "tied": json.dumps(tied)}
        save_file(kept, file_of_tensors, metadata)
        shutil.copymode(new / "config.json", file_of_tensors)  # it is written for its owner alone
        for name, words in dictionaries(trained).items():
            words.save(str(new / name))
    numbers = sum(tensor.numel() for tensor in kept.values())
    print(f"wrote {args.out}: {len(kept)} tensors, {numbers:,} numbers")


def untied(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor once, and for each other name of one the name that it is kept by."""
    kept: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (name,)
        if place in first:
            tied[name] = first[place]
        else:
            first[place] = name
            kept[name] = tensor.contiguous()
    return kept, tied


def configuration(trained: Trained) -> dict[str, Any]:
    """The options of the model, as fairseq-train has them; none of the run's, such as folders."""
    config, parser = trained.config, ArgumentParser()
    type(trained.model).add_args(parser)
    names = {*vars(parser.parse_args([])), *MORE}
    given: Any = vars(config) if isinstance(config, Namespace) else OmegaConf.to_container(config)
    return {name: value for name, value in given.items() if name in names and is_plain(value)}


def is_plain(value: Any) -> bool:
    """Whether JSON has such a value, and fairseq such an option."""
    return value is None or isinstance(value, (bool, int, float, str, list))


def dictionaries(trained: Trained) -> dict[str, Any]:
    """The model's, by the names of fairseq's files."""
    if trained.is_encoder:
        return {"dict.txt": trained.model.encoder.dictionary}
    languages, model = trained.task.cfg, trained.model
    return {
        f"dict.{languages.source_lang}.txt": model.encoder.dictionary,
        f"dict.{languages.target_lang}.txt": model.decoder.dictionary,
    }
